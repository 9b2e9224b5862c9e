//! Signatures of others, by keys that they publish.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// RSA, for PKCS #1 with SHA-256: RS256.
    Rsa {
        /// The modulus, without leading zeros.
        n: Vec<u8>,
        /// The exponent.
        e: Vec<u8>,
    },
    /// A point on P-256, for ECDSA with SHA-256: ES256.
    P256 {
        /// One coordinate.
        x: Vec<u8>,
        /// The other.
        y: Vec<u8>,
    },
}

impl PublicKey {
    /// Whether a message was signed by whoever has the other half.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            Self::P256 { x, y } => {
                // The point as it stands in no shorter form.
                let point: Vec<u8> = [&[4], x.as_slice(), y.as_slice()].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
        }
    }
}
