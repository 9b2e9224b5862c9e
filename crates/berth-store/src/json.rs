//! JSON as text.

use crate::StoreError;
use serde::{Serialize, de::DeserializeOwned};

/// A JSON text. It stays text on its way through the store: a tree of values in between would lose integers of more
/// than 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// The JSON of a value. Fails for what JSON cannot say, as a map whose keys are no text.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, StoreError> {
        let text = serde_json::to_string(value).map_err(|error| StoreError::NotJson(error.to_string()))?;
        Ok(Self(text))
    }

    /// The value this is the JSON of.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.0).map_err(|error| StoreError::NotJson(error.to_string()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A text that was JSON when it was stored.
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }
}
