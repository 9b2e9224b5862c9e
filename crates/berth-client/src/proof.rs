//! Proves that whoever ends a sign-in is who began it.

use sha2::{Digest, Sha256};

/// A secret and its hash: the hash is shown when something begins, and the secret when it ends.
pub struct Proof {
    /// The secret.
    pub verifier: String,
    /// Its SHA-256, in hexadecimal digits.
    pub challenge: String,
}

impl Proof {
    /// A new one: 256 random bits.
    #[expect(clippy::new_without_default, reason = "two of them are never the same")]
    pub fn new() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let verifier = hex(&bytes);
        let challenge = hex(&Sha256::digest(&verifier));
        Self { verifier, challenge }
    }
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proof")
    }
}
