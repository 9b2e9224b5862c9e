//! A server's certificate: from files of an administrator, or made once and kept.

use crate::{Fingerprint, TlsError, provider};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio_rustls::TlsAcceptor;

/// One that was made lasts for so many years: it is believed by its fingerprint, which should not change under people.
const YEARS: i32 = 10;

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// From files in PEM, the server's own certificate first.
    Files {
        /// The certificate, and those between it and its authority.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Made at the first start, and kept in a folder.
    Made {
        /// The folder.
        folder: PathBuf,
        /// Hosts and addresses it is for.
        names: Vec<String>,
    },
}

impl Source {
    fn files(&self) -> (PathBuf, PathBuf) {
        match self {
            Self::Files { certificate, key } => (certificate.clone(), key.clone()),
            Self::Made { folder, .. } => (folder.join("certificate.pem"), folder.join("key.pem")),
        }
    }

    /// Makes what is to be made and is not there.
    fn prepare(&self) -> Result<(), TlsError> {
        let Self::Made { folder, names } = self else { return Ok(()) };
        let (certificate, key) = self.files();
        if certificate.exists() && key.exists() {
            return Ok(());
        }
        let unwritable = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Unwritable { path, source }
        };
        let (certificate_text, key_text) = make(names)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritable(folder))?;
        // The key first: a certificate without one is made again.
        write_private(&key, &key_text).map_err(unwritable(&key))?;
        write_private(&certificate, &certificate_text).map_err(unwritable(&certificate))
    }
}

/// A certificate that signs itself, and its key.
fn make(names: &[String]) -> Result<(String, String), TlsError> {
    let wrong = |error: rcgen::Error| TlsError::Content {
        place: format!("a certificate for {}", names.join(", ")),
        reason: error.to_string(),
    };
    let mut params = CertificateParams::new(names.to_vec()).map_err(wrong)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "berth");
    params.distinguished_name = name;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let year = 1970 + (since / 31_556_952) as i32;
    // Since the beginning of the year before, so that it counts on a machine whose clock is late.
    (params.not_before, params.not_after) =
        (date_time_ymd(year - 1, 1, 1), date_time_ymd(year + YEARS, 1, 1));
    let key = KeyPair::generate().map_err(wrong)?;
    let certificate = params.self_signed(&key).map_err(wrong)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// For its owner alone, as a whole or not at all.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// A server's certificate as it is now; connections that are open keep the one they began with.
#[derive(Debug)]
pub struct Certificate {
    source: Source,
    current: RwLock<Arc<CertifiedKey>>,
    /// A hash of what was read last, whether or not it could be used.
    read: Mutex<[u8; 32]>,
}

impl Certificate {
    /// Reads it, or makes it.
    pub fn open(source: Source) -> Result<Arc<Self>, TlsError> {
        source.prepare()?;
        let texts = read(&source)?;
        let current = RwLock::new(Arc::new(parsed(&source, &texts)?));
        Ok(Arc::new(Self { source, current, read: Mutex::new(hash(&texts)) }))
    }

    /// Looks at the files again; whether there was something new, which is used from now on. What cannot be used is told once,
    /// and changes nothing.
    pub fn look_again(&self) -> Result<bool, TlsError> {
        let texts = read(&self.source)?;
        let now = hash(&texts);
        {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if *read == now {
                return Ok(false);
            }
            *read = now;
        }
        let new = Arc::new(parsed(&self.source, &texts)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(true)
    }

    /// What people compare.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.current().cert[0])
    }

    /// Accepts connections with it, whichever it is by then.
    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, TlsError> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Handshake(io::Error::other(error)))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// The texts of certificate and key.
fn read(source: &Source) -> Result<[Vec<u8>; 2], TlsError> {
    let (certificate, key) = source.files();
    let text = |path: PathBuf| fs::read(&path).map_err(|source| TlsError::Unreadable { path, source });
    Ok([text(certificate)?, text(key)?])
}

fn hash([certificate, key]: &[Vec<u8>; 2]) -> [u8; 32] {
    Sha256::new().chain_update(Sha256::digest(certificate)).chain_update(key).finalize().into()
}

fn parsed(source: &Source, [certificate, key]: &[Vec<u8>; 2]) -> Result<CertifiedKey, TlsError> {
    let (certificate_path, key_path) = source.files();
    let wrong = |path: &Path, reason: String| TlsError::Content { place: path.display().to_string(), reason };
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| wrong(&certificate_path, format!("no certificate in PEM: {error}")))?;
    if chain.is_empty() {
        return Err(wrong(&certificate_path, "it holds no certificate in PEM".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong(&key_path, format!("it holds no private key in PEM: {error}")))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong(
            &key_path,
            format!("this is not the key of the certificate in {}", certificate_path.display()),
        ),
        error => wrong(&key_path, error.to_string()),
    })
}
