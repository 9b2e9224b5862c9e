//! How people reach the server in front of a cluster: TLS and single sign-on, as additions to what is installed without them.

use crate::failure::Failure;
use clap::Args;
use serde_json::{Value, json};

/// What is written in every object of the server.
pub(super) const OF_SERVER: &str = "  name: berth-server\n";
/// Where its API is; ports of workloads are beside it, at the next.
const API_PORT: u16 = 7370;
/// Where secrets are mounted.
const TLS_FOLDER: &str = "/etc/berth/tls";
const CLIENT_FOLDER: &str = "/etc/berth/oidc";
const AUTHORITY_FOLDER: &str = "/etc/berth/oidc-ca";
/// What is allowed out without a word.
const HTTPS_PORT: u16 = 443;

#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Access to the server")]
pub(crate) struct ServerAccess {
    /// Let people reach the server beyond its Pod, with the certificate in this secret (`tls.crt` and `tls.key`)
    #[arg(long, value_name = "SECRET", requires = "public_name")]
    tls_secret: Option<String>,
    /// The name by which people reach it then; its certificate is for this name
    #[arg(long, value_name = "HOST", requires = "tls_secret")]
    public_name: Option<String>,
    /// Single sign-on by this provider of OpenID Connect, as https://id.example
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// What the provider knows the server by
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// The secret whose `client-secret` the provider gave the server, if it did
    #[arg(long, value_name = "SECRET", requires = "oidc_issuer")]
    oidc_client_secret: Option<String>,
    /// Which claim is the name of a user [default: email]
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer")]
    oidc_user_claim: Option<String>,
    /// Which claim are a user's groups [default: groups]
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer")]
    oidc_groups_claim: Option<String>,
    /// What people know the provider by [default: its host]
    #[arg(long, value_name = "NAME", requires = "oidc_issuer")]
    oidc_name: Option<String>,
    /// The secret whose `ca.crt` signed the provider's certificate, if no public authority did
    #[arg(long, value_name = "SECRET", requires = "oidc_issuer")]
    oidc_ca_secret: Option<String>,
}

impl ServerAccess {
    /// Whether anything is asked for.
    pub(super) fn is_any(&self) -> bool {
        self.tls_secret.is_some() || self.oidc_issuer.is_some()
    }

    /// Whether names are names and addresses are addresses.
    pub(super) fn check(&self) -> Result<(), Failure> {
        for secret in [&self.tls_secret, &self.oidc_client_secret, &self.oidc_ca_secret].into_iter().flatten()
        {
            if !berth_api::is_name(secret) {
                let text = format!("{} is no name of a secret", berth_api::quoted(secret));
                return Err(Failure::misuse(text).hint(berth_api::NAME_RULE));
            }
        }
        if let Some(name) = &self.public_name {
            let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
            if name.is_empty() || !name.chars().all(is_host) {
                let text = format!("{} is no name of a host", berth_api::quoted(name));
                return Err(
                    Failure::misuse(text).hint("write it without a scheme or a port, as berth.example")
                );
            }
        }
        match &self.oidc_issuer {
            Some(issuer) if issuer_port(issuer).is_none() => {
                let text = format!("{} is no address of a provider", berth_api::quoted(issuer));
                Err(Failure::misuse(text).hint("write it as https://id.example"))
            }
            _ => Ok(()),
        }
    }

    /// Adds what is asked for to an object of the server; gives what else is to be installed beside it.
    pub(super) fn add_to(&self, object: &mut Value) -> Option<Value> {
        if object["kind"] == "NetworkPolicy" {
            self.add_to_policy(&mut object["spec"]);
        }
        if object["kind"] != "Deployment" {
            return None;
        }
        self.add_to_pod(&mut object["spec"]["template"]["spec"]);
        self.tls_secret.is_some().then(|| service_of(object))
    }

    fn add_to_pod(&self, pod: &mut Value) {
        let (mut variables, mut mounts, mut volumes) = (Vec::new(), Vec::new(), Vec::new());
        let mut say = |name: &str, value: &str| variables.push(json!({ "name": name, "value": value }));
        let mut mount = |name: &str, secret: &str, folder: &str| {
            mounts.push(json!({ "name": name, "mountPath": folder, "readOnly": true }));
            volumes.push(json!({ "name": name, "secret": { "secretName": secret } }));
        };
        if let Some(secret) = &self.tls_secret {
            mount("tls", secret, TLS_FOLDER);
            say("BERTH_TLS_CERT", &format!("{TLS_FOLDER}/tls.crt"));
            say("BERTH_TLS_KEY", &format!("{TLS_FOLDER}/tls.key"));
        }
        for (name, value) in [
            ("BERTH_PUBLIC_NAME", &self.public_name),
            ("BERTH_OIDC_ISSUER", &self.oidc_issuer),
            ("BERTH_OIDC_CLIENT_ID", &self.oidc_client_id),
            ("BERTH_OIDC_USER_CLAIM", &self.oidc_user_claim),
            ("BERTH_OIDC_GROUPS_CLAIM", &self.oidc_groups_claim),
            ("BERTH_OIDC_NAME", &self.oidc_name),
        ] {
            value.iter().for_each(|value| say(name, value));
        }
        if let Some(secret) = &self.oidc_client_secret {
            mount("oidc", secret, CLIENT_FOLDER);
            say("BERTH_OIDC_CLIENT_SECRET_FILE", &format!("{CLIENT_FOLDER}/client-secret"));
        }
        if let Some(secret) = &self.oidc_ca_secret {
            mount("oidc-ca", secret, AUTHORITY_FOLDER);
            say("BERTH_OIDC_CA_FILE", &format!("{AUTHORITY_FOLDER}/ca.crt"));
        }
        append(&mut pod["volumes"], volumes);
        let container = &mut pod["containers"][0];
        append(&mut container["env"], variables);
        append(&mut container["volumeMounts"], mounts);
        if self.tls_secret.is_none() {
            return;
        }
        let listens = container["env"].as_array_mut().into_iter().flatten();
        for variable in listens.filter(|variable| variable["name"] == "BERTH_LISTEN") {
            variable["value"] = format!("0.0.0.0:{API_PORT}").into();
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let probe = container[probe].as_object_mut().expect("the server has probes");
            probe.remove("exec");
            let question = json!({ "path": "/healthz", "port": "api", "scheme": "HTTPS" });
            probe.insert("httpGet".into(), question);
        }
    }

    fn add_to_policy(&self, policy: &mut Value) {
        if self.tls_secret.is_some() {
            // Whoever may reach it has to show a token, or a session of the dashboard.
            append(&mut policy["ingress"], vec![json!({ "ports": [tcp(API_PORT), tcp(API_PORT + 1)] })]);
        }
        let provider = self.oidc_issuer.as_deref().and_then(issuer_port);
        if let Some(port) = provider.filter(|port| *port != HTTPS_PORT) {
            append(&mut policy["egress"], vec![json!({ "ports": [tcp(port)] })]);
        }
    }
}

fn tcp(port: u16) -> Value {
    json!({ "protocol": "TCP", "port": port })
}

fn append(list: &mut Value, more: Vec<Value>) {
    list.as_array_mut().expect("the manifest has this list").extend(more);
}

/// How others find the server: by the ports of its Pod.
fn service_of(deployment: &Value) -> Value {
    let port = |name: &str, port: u16| json!({ "name": name, "port": port, "targetPort": name });
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": deployment["metadata"],
        "spec": {
            "type": "ClusterIP",
            "selector": deployment["spec"]["selector"]["matchLabels"],
            "ports": [port("api", API_PORT), port("workloads", API_PORT + 1)],
        },
    })
}

/// The port at which a provider answers, if this is the address of one.
fn issuer_port(issuer: &str) -> Option<u16> {
    let rest = issuer.strip_prefix("https://")?;
    let authority = rest.split('/').next()?;
    let fits = |letter: char| letter.is_ascii_graphic() && !"\"'@?#".contains(letter);
    if authority.is_empty() || !rest.chars().all(fits) {
        return None;
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() => port.parse().ok(),
        Some(_) => None,
        None => Some(HTTPS_PORT),
    }
}

#[cfg(test)]
mod tests;
