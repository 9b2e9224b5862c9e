//! What hardware there is. A seam: each vendor is one [`Vendor`].

use berth_types::Bytes;
use serde::{Deserialize, Serialize};

/// One GPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its number.
    pub index: u8,
    /// Its identity, which stays when numbers change.
    pub uuid: String,
    /// The number in the name of its file, which need not be its own.
    pub minor: Option<u32>,
    /// Its model.
    pub model: String,
    /// Its memory.
    pub memory: Bytes,
    /// The memory in use.
    pub memory_used: Bytes,
    /// How busy it is, in percent.
    pub utilisation: Option<u8>,
    /// The processes that use it.
    pub processes: Vec<u32>,
}

/// What was found, and why nothing, if nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Devices {
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// Why there are none, in a sentence for a person.
    pub reason: Option<String>,
}

/// A maker of devices.
pub trait Vendor: Send + Sync {
    /// Looks at the devices now. The text says why there are none.
    fn look(&self) -> Result<Vec<Gpu>, String>;
}

/// Asks every vendor.
pub(crate) fn look(vendors: &[Box<dyn Vendor>]) -> Devices {
    let mut devices = Devices::default();
    let mut reasons = Vec::new();
    for vendor in vendors {
        match vendor.look() {
            Ok(gpus) => devices.gpus.extend(gpus),
            Err(reason) => reasons.push(reason),
        }
    }
    if devices.gpus.is_empty() {
        devices.reason =
            Some(if reasons.is_empty() { "this machine has no GPU".into() } else { reasons.join("; ") });
    }
    devices
}

/// The vendors this build knows.
pub(crate) fn vendors() -> Vec<Box<dyn Vendor>> {
    vec![Box::new(crate::nvml::Nvidia::default())]
}
