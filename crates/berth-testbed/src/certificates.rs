//! Keys, certificates and tokens of one control plane. They live as long as its folder.

use crate::REAL_NODE;
use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

pub(crate) const AUTHORITY: &str = "ca.crt";
pub(crate) const SERVER: &str = "apiserver.crt";
pub(crate) const SERVER_KEY: &str = "apiserver.key";
/// Signs the tokens of service accounts.
pub(crate) const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
pub(crate) const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";
pub(crate) const TOKENS: &str = "tokens.csv";
/// What the kubelet of a real node shows to whoever calls it, and what it shows to the API server.
pub(crate) const KUBELET_SERVER: &str = "kubelet-server.crt";
pub(crate) const KUBELET_SERVER_KEY: &str = "kubelet-server.key";
pub(crate) const KUBELET_CLIENT: &str = "kubelet-client.crt";
pub(crate) const KUBELET_CLIENT_KEY: &str = "kubelet-client.key";
/// What the API server shows to a kubelet.
pub(crate) const SERVER_CLIENT: &str = "apiserver-kubelet-client.crt";
pub(crate) const SERVER_CLIENT_KEY: &str = "apiserver-kubelet-client.key";

/// Names and addresses under which the API server is called.
const SERVER_NAMES: [&str; 6] =
    ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"];

/// Writes an authority, the certificates of the API server and of a real node, the key of service accounts and the
/// administrator's token.
pub(crate) fn write(folder: &Path, token: &str) -> Result<()> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "berth-testbed");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    write_secret(&folder.join(AUTHORITY), &authority.pem())?;
    let issue = |names: &[&str], subject: (&str, Option<&str>), files: [&str; 2]| -> Result<()> {
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        let for_servers = !names.is_empty();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, subject.0);
        if let Some(group) = subject.1 {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![if for_servers {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        write_secret(&folder.join(files[0]), &params.signed_by(&key, &authority)?.pem())?;
        write_secret(&folder.join(files[1]), &key.serialize_pem())
    };
    let node = format!("system:node:{REAL_NODE}");
    issue(&SERVER_NAMES, ("kube-apiserver", None), [SERVER, SERVER_KEY])?;
    issue(&[REAL_NODE], (&node, None), [KUBELET_SERVER, KUBELET_SERVER_KEY])?;
    issue(&[], (&node, Some("system:nodes")), [KUBELET_CLIENT, KUBELET_CLIENT_KEY])?;
    issue(&[], ("kube-apiserver", Some("system:masters")), [SERVER_CLIENT, SERVER_CLIENT_KEY])?;
    let key = KeyPair::generate()?;
    write_secret(&folder.join(SERVICE_ACCOUNT_KEY), &key.serialize_pem())?;
    write_secret(&folder.join(SERVICE_ACCOUNT_PUBLIC_KEY), &key.public_key_pem())?;
    write_secret(&folder.join(TOKENS), &format!("{token},admin,admin,system:masters\n"))
}

/// A token nobody can guess.
pub(crate) fn token() -> Result<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).context("random bytes for a token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<()> {
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", path.display()))
}
