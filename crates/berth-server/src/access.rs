//! How people from elsewhere reach a server: the options of every program that starts one.

use crate::{Folder, ServerError};
use berth_tls::Source;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

/// How a server is reached from elsewhere.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Access")]
pub struct Access {
    /// Speak TLS with the certificate in this file (PEM, its own first); a changed file is taken up within seconds
    #[arg(long, env = "BERTH_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, env = "BERTH_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Speak TLS with a certificate that is made once, signs itself, and is kept in the server's folder
    #[arg(long, env = "BERTH_TLS_GENERATE", conflicts_with = "tls_cert")]
    pub tls_generate: bool,
    /// The name by which other machines know this one, for links and for a certificate that is made; its own name when absent
    #[arg(long, env = "BERTH_PUBLIC_NAME", value_name = "HOST")]
    pub public_name: Option<String>,
    /// Listen beyond this machine without TLS: whoever is in between reads every token
    #[arg(long, env = "BERTH_INSECURE_LISTEN")]
    pub insecure_listen: bool,
    /// Single sign-on by this provider of OpenID Connect, as https://id.example
    #[arg(long, env = "BERTH_OIDC_ISSUER", value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer: Option<String>,
    /// What the provider knows this server by
    #[arg(long, env = "BERTH_OIDC_CLIENT_ID", value_name = "ID", requires = "oidc_issuer")]
    pub oidc_client_id: Option<String>,
    /// A file with the secret that the provider gave this server, if it did
    #[arg(long, env = "BERTH_OIDC_CLIENT_SECRET_FILE", value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// Which claim is the name of a user [default: email]
    #[arg(long, env = "BERTH_OIDC_USER_CLAIM", value_name = "CLAIM", requires = "oidc_issuer")]
    pub oidc_user_claim: Option<String>,
    /// Which claim are a user's groups, which can have roles as `group:NAME` [default: groups]
    #[arg(long, env = "BERTH_OIDC_GROUPS_CLAIM", value_name = "CLAIM", requires = "oidc_issuer")]
    pub oidc_groups_claim: Option<String>,
    /// What people know the provider by [default: its host]
    #[arg(long, env = "BERTH_OIDC_NAME", value_name = "NAME", requires = "oidc_issuer")]
    pub oidc_name: Option<String>,
    /// A file with the authority that signed the provider's certificate (PEM); those of the machine when absent
    #[arg(long, env = "BERTH_OIDC_CA_FILE", value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_ca_file: Option<PathBuf>,
}

impl Access {
    /// Where the certificate comes from, if there is to be one.
    pub(crate) fn certificate(&self, listen: SocketAddr, folder: &Folder) -> Option<Source> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(Source::Files { certificate: certificate.clone(), key: key.clone() })
            }
            _ if self.tls_generate => {
                let mut names = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
                names.push(self.host(listen.ip()));
                names.extend((!listen.ip().is_unspecified()).then(|| listen.ip().to_string()));
                names.sort();
                names.dedup();
                Some(Source::Made { folder: folder.tls(), names })
            }
            _ => None,
        }
    }

    /// Whoever listens to everybody has either TLS, or somebody who said that it need not be.
    pub(crate) fn check(&self, listen: SocketAddr) -> Result<(), ServerError> {
        let is_protected = self.tls_generate || (self.tls_cert.is_some() && self.tls_key.is_some());
        match listen.ip().is_loopback() || is_protected || self.insecure_listen {
            true => Ok(()),
            false => Err(ServerError::NotLoopback(listen)),
        }
    }

    /// The host by which people reach an address.
    pub(crate) fn host(&self, ip: IpAddr) -> String {
        match (&self.public_name, ip) {
            (Some(name), _) => name.clone(),
            (None, ip) if ip.is_unspecified() => machine().unwrap_or_else(|| own(ip).to_string()),
            (None, ip) => ip.to_string(),
        }
    }
}

/// The name of this machine, if it can stand in an address.
fn machine() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_ascii_lowercase();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    (!name.is_empty() && name.chars().all(fits)).then_some(name)
}

/// The address by which this machine reaches what listens on one.
pub(crate) fn own(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn nobody_listens_to_other_machines_by_accident() {
        let open = Access::default();
        assert!(open.check(address("127.0.0.1:1")).is_ok() && open.check(address("[::1]:1")).is_ok());
        for beyond in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            let refused = open.check(address(beyond)).expect_err(beyond).to_string();
            for word in [beyond, "--tls-cert", "--tls-generate", "--insecure-listen"] {
                assert!(refused.contains(word), "{refused}");
            }
            assert!(Access { tls_generate: true, ..Access::default() }.check(address(beyond)).is_ok());
            assert!(Access { insecure_listen: true, ..Access::default() }.check(address(beyond)).is_ok());
            let half = Access { tls_cert: Some("x".into()), ..Access::default() };
            assert!(half.check(address(beyond)).is_err(), "a certificate without a key protects nothing");
        }
    }

    #[test]
    fn people_are_told_a_name_they_can_reach() {
        let named = Access { public_name: Some("berth.example".into()), ..Access::default() };
        assert_eq!(named.host(address("0.0.0.0:1").ip()), "berth.example");
        assert_eq!(Access::default().host(address("127.0.0.1:1").ip()), "127.0.0.1");
        assert_ne!(Access::default().host(address("0.0.0.0:1").ip()), "0.0.0.0");
    }
}
