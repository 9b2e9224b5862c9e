//! Keys, certificates and tokens of one control plane. They live as long as its folder.

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

/// Names and addresses under which the API server is called.
const SERVER_NAMES: [&str; 6] =
    ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"];

/// Writes an authority, the server's certificate, the key of service accounts and the administrator's token.
pub(crate) fn write(folder: &Path, token: &str) -> Result<()> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "berth-testbed");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let mut params = CertificateParams::new(SERVER_NAMES.map(String::from).to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let server = params.signed_by(&key, &authority)?;

    write_secret(&folder.join(AUTHORITY), &authority.pem())?;
    write_secret(&folder.join(SERVER), &server.pem())?;
    write_secret(&folder.join(SERVER_KEY), &key.serialize_pem())?;
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
