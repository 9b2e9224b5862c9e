//! Whose certificate a client believes.

use crate::{Fingerprint, TlsError, provider};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Whose certificate is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// What the authorities of this machine signed.
    #[default]
    System,
    /// What these authorities signed, in PEM, and nobody else.
    Authorities(String),
    /// One certificate, whatever it says about itself.
    Fingerprint(Fingerprint),
}

impl Trust {
    /// The authorities of a file.
    pub fn of_file(path: &Path) -> Result<Self, TlsError> {
        let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(unreadable)?;
        authorities(&text, &path.display().to_string())?;
        Ok(Self::Authorities(text))
    }
}

fn authorities(text: &str, place: &str) -> Result<RootCertStore, TlsError> {
    let wrong = |reason: String| TlsError::Content { place: place.to_owned(), reason };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|error| wrong(format!("no certificate in PEM: {error}")))?;
        store.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    match store.is_empty() {
        true => Err(wrong("it holds no certificate in PEM".into())),
        false => Ok(store),
    }
}

/// Opens connections to servers that are trusted.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    verifier: Arc<Verifier>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connector").field(&self.verifier.known).finish()
    }
}

impl Connector {
    /// A connector that believes these.
    pub fn new(trust: &Trust) -> Result<Self, TlsError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let signed_by = |roots: RootCertStore| {
            let built =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
            built.map(Known::Signed).map_err(|error| TlsError::Content {
                place: "the authorities that are trusted".into(),
                reason: error.to_string(),
            })
        };
        let known = match trust {
            Trust::Fingerprint(fingerprint) => Known::One(*fingerprint),
            Trust::Authorities(text) => signed_by(authorities(text, "the authorities that are trusted")?)?,
            Trust::System => {
                let mut roots = RootCertStore::empty();
                // A machine may keep some that nobody understands; the others count.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                match roots.is_empty() {
                    // A machine without any trusts nobody, which is said when somebody is met.
                    true => Known::Nobody,
                    false => signed_by(roots)?,
                }
            }
        };
        let verifier = Arc::new(Verifier { known, algorithms, seen: Mutex::default() });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Handshake(io::Error::other(error)))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), verifier })
    }

    /// Speaks TLS over a connection to a host.
    pub async fn connect<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host(host.to_owned()))?;
        let connected = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await;
        connected.map_err(|error| self.verifier.explained(error, host))
    }
}

#[derive(Debug)]
enum Known {
    Nobody,
    Signed(Arc<WebPkiServerVerifier>),
    One(Fingerprint),
}

/// Believes what is known, and remembers what it saw, so that a person can be told.
#[derive(Debug)]
struct Verifier {
    known: Known,
    algorithms: WebPkiSupportedAlgorithms,
    seen: Mutex<Option<Fingerprint>>,
}

impl Verifier {
    fn explained(&self, error: io::Error, host: &str) -> TlsError {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::InvalidCertificate(reason)) => match (&self.known, seen) {
                (Known::One(trusted), Some(found)) => TlsError::Another { trusted: *trusted, found },
                _ => TlsError::Untrusted { fingerprint: seen, reason: in_words(reason, host) },
            },
            Some(Error::InvalidMessage(_)) => TlsError::NotTls,
            _ => TlsError::Handshake(error),
        }
    }
}

fn in_words(reason: &CertificateError, host: &str) -> String {
    match reason {
        CertificateError::UnknownIssuer => "nobody who is trusted here signed it".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired, or the clock of this machine is wrong".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, or the clock of this machine is wrong".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is for other names than {host}")
        }
        other => other.to_string(),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(end_entity);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        match &self.known {
            Known::Signed(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Known::One(trusted) if *trusted == found => Ok(ServerCertVerified::assertion()),
            Known::One(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            Known::Nobody => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    // That the other side has the key is proven by these two, whichever way its certificate is believed.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
