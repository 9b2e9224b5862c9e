//! Amounts in resources: a number or a text, and what the API server checks of them before we see them.

use crate::quantity::{self, QuantityError};
use berth_types::{Bytes, Cpu, Gpus};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};
use std::{borrow::Cow, fmt};

/// A quantity as it was written: a whole number, or a text such as `0.5`, `500m`, `16Gi`.
#[derive(Clone, PartialEq, Eq)]
pub enum Amount {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Amount {
    /// The text of it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Text(text) => text.as_str().into(),
        }
    }

    /// As GPUs.
    pub fn gpus(&self) -> Result<Gpus, QuantityError> {
        quantity::gpus(&self.text())
    }

    /// As CPU.
    pub fn cpu(&self) -> Result<Cpu, QuantityError> {
        quantity::cpu(&self.text())
    }

    /// As bytes.
    pub fn bytes(&self) -> Result<Bytes, QuantityError> {
        quantity::bytes(&self.text())
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Amount {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Gpus> for Amount {
    fn from(gpus: Gpus) -> Self {
        match gpus.0 % Gpus::SCALE {
            0 => Self::Number((gpus.0 / Gpus::SCALE) as i64),
            _ => Self::Text(gpus.to_string()),
        }
    }
}

impl From<Cpu> for Amount {
    fn from(cpu: Cpu) -> Self {
        Self::Text(quantity::cpu_text(cpu))
    }
}

impl From<Bytes> for Amount {
    fn from(bytes: Bytes) -> Self {
        Self::Text(quantity::bytes_text(bytes))
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or the text of a quantity")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount::Number(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Amount, E> {
                // Too large for any amount, which whoever reads the text will say.
                Ok(i64::try_from(number).map_or_else(|_| Amount::Text(number.to_string()), Amount::Number))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount::Text(text.into()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        checked_amount("write a number, or a text such as \"0.5\", 500m or 16Gi", &[])
    }
}

/// A rule in the language of the API server, and what it says when it is broken.
fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// A number or text that is a quantity and not negative, and whatever else is asked of it. A rule may read `self` as
/// a quantity only behind a guard, because every rule is asked about every value.
fn checked_amount(not_a_quantity: &str, more: &[(&str, &str)]) -> Schema {
    const GUARD: &str = "!isQuantity(string(self))";
    let mut rules = vec![
        rule("isQuantity(string(self))", not_a_quantity),
        rule(
            &format!("{GUARD} || quantity(string(self)).compareTo(quantity('0')) >= 0"),
            "an amount cannot be negative",
        ),
    ];
    rules.extend(more.iter().map(|(asked, message)| rule(&format!("{GUARD} || {asked}"), message)));
    json_schema!({
        "x-kubernetes-int-or-string": true,
        // Bounds what a rule may cost; no amount is longer.
        "maxLength": 64,
        "x-kubernetes-validations": rules,
    })
}

/// GPUs of one worker: whole ones, or a fraction of one.
pub(super) fn gpus(_: &mut SchemaGenerator) -> Schema {
    checked_amount(
        "write a whole number of GPUs, or a fraction of one as text: \"0.5\" or 500m",
        &[
            (
                "quantity(string(self)).compareTo(quantity('1')) <= 0 || quantity(string(self)).isInteger()",
                "above one GPU only whole GPUs can be asked for: write 2, or take a fraction of several devices with gpus: \"0.5\" and gpuDevices: 2",
            ),
            (
                "quantity(string(self)).compareTo(quantity('64')) <= 0",
                "one worker cannot have more than 64 GPUs: spread the work over several with kind: distributed and workers",
            ),
        ],
    )
}

/// Memory of each device.
pub(super) fn gpu_memory(_: &mut SchemaGenerator) -> Schema {
    checked_amount(
        "write GPU memory as a quantity, such as 16Gi",
        &[(
            "quantity(string(self)).compareTo(quantity('0')) > 0",
            "0 bytes of GPU memory hold nothing: leave gpuMemory out",
        )],
    )
}

/// CPU of one worker.
pub(super) fn cpu(_: &mut SchemaGenerator) -> Schema {
    checked_amount("write cores of CPU as a quantity, such as 4, \"0.5\" or 500m", &[])
}

/// Memory of one worker.
pub(super) fn memory(_: &mut SchemaGenerator) -> Schema {
    checked_amount("write memory as a quantity, such as 16Gi", &[])
}

/// GPUs of a quota, a limit or a weight: any amount.
pub(super) fn quota(_: &mut SchemaGenerator) -> Schema {
    checked_amount(
        "write an amount of GPUs, such as 4 or \"0.5\"",
        &[(
            "quantity(string(self)).compareTo(quantity('1M')) <= 0",
            "a million GPUs are the most there can be",
        )],
    )
}

/// Quotas by GPU model.
pub(super) fn model_quotas(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "maxProperties": 16, "additionalProperties": quota(generator) })
}

/// A priority: a number, or a name.
pub(super) fn priority(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 16,
        "x-kubernetes-validations": [rule(
            "type(self) == int || self in ['very-low', 'low', 'medium', 'medium-high', 'high', 'very-high', 'critical']",
            "write a number, or one of very-low, low, medium, medium-high, high, very-high, critical",
        )],
    })
}

/// A length of time.
pub(super) fn span(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(
            r"self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h|d))+$')",
            "write a length of time with a unit: 30s, 90m, 2h, 1h30m or 7d",
        )],
    })
}

/// A length of time that is not nothing.
pub(super) fn positive_span(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(
            r"self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h|d))+$') && self.matches('[1-9]')",
            "write a length of time above nothing, with a unit: 30s, 90m, 2h, 1h30m or 7d; leave it out for no limit",
        )],
    })
}

/// Anything at all, kept as it is.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
