//! Certificates by their hash, for people to compare.

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};

const PREFIX: &str = "SHA256:";

/// The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it, without its colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate.as_ref()).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    /// Also as other tools write it: in capitals, and with colons.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("a fingerprint is {PREFIX} and 64 hexadecimal digits");
        let text = text.trim();
        let digits = match text.get(..PREFIX.len()) {
            Some(prefix) if prefix.eq_ignore_ascii_case(PREFIX) => &text[PREFIX.len()..],
            _ => text,
        };
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_people_and_tools_write_it() {
        let known = Fingerprint::of(&CertificateDer::from(vec![1, 2, 3]));
        let text = known.to_string();
        assert!(text.starts_with("SHA256:039058c6"), "{text}");
        assert_eq!(text.parse(), Ok(known));
        let digits = text.strip_prefix(PREFIX).expect("its prefix").to_ascii_uppercase();
        let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
        assert_eq!(pairs.join(":").parse(), Ok(known));
        for wrong in ["", "SHA256:", "SHA256:12", &text[..70], &format!("{text}0"), "SHA1:ééé"] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
