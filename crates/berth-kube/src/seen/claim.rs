//! Claims of devices: what they ask for, and what they got.

use super::{Key, Refusal, Text, objects::ClaimObject};
use crate::{names, quantity};
use berth_types::{GpuRequest, Name, Share};
use std::{
    collections::BTreeSet,
    num::{NonZeroU8, NonZeroU64},
};

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimSeen {
    pub(crate) key: Key,
    pub(crate) uid: Text,
    pub(crate) version: Text,
    pub(crate) leaving: bool,
    /// What it asks for.
    pub(crate) asked: Result<ClaimAsk, Refusal>,
    /// Its one request, which results name.
    pub(crate) request: Text,
    /// What it got.
    pub(crate) taken: Option<Vec<Taken>>,
    /// The Pods that use it.
    pub(crate) users: Vec<Text>,
}

/// What a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimAsk {
    pub(crate) gpu: GpuRequest,
    pub(crate) models: BTreeSet<Name>,
}

/// A share of a device that a claim got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) node: Text,
    pub(crate) device: Text,
    pub(crate) share: Share,
}

impl ClaimSeen {
    /// None for a claim of another driver's devices.
    pub(crate) fn of(claim: ClaimObject) -> Option<Self> {
        let results = claim.status.allocation.as_ref().map(|allocation| &allocation.devices.results);
        let asks_us = claim.spec.devices.requests.iter().any(|request| {
            request.exactly.as_ref().is_some_and(|exactly| exactly.device_class_name == names::DEVICE_CLASS)
        });
        let got_ours =
            results.is_some_and(|results| results.iter().any(|result| result.driver == names::DRIVER));
        if !asks_us && !got_ours {
            return None;
        }
        let taken = results.map(|results| {
            let ours = results.iter().filter(|result| result.driver == names::DRIVER);
            let taken = ours.map(|result| Taken {
                node: result.pool.as_str().into(),
                device: result.device.as_str().into(),
                share: result
                    .consumed_capacity
                    .get(names::CAPACITY_SHARE)
                    .and_then(|text| share(text))
                    .unwrap_or(Share::WHOLE),
            });
            taken.collect()
        });
        let request = claim.spec.devices.requests.first().map_or("", |request| request.name.as_str());
        Some(Self {
            key: Key::new(&claim.metadata.namespace, &claim.metadata.name),
            uid: claim.metadata.uid.as_str().into(),
            version: claim.metadata.resource_version.as_str().into(),
            leaving: claim.metadata.deletion_timestamp.is_some(),
            request: request.into(),
            taken,
            users: claim.status.reserved_for.iter().map(|user| user.uid.as_str().into()).collect(),
            asked: asked(&claim),
        })
    }
}

fn share(text: &str) -> Option<Share> {
    quantity::share(text).ok()
}

fn asked(claim: &ClaimObject) -> Result<ClaimAsk, Refusal> {
    let refuse = |what: String| {
        Err(Refusal::new("UnsupportedClaim", format!("claim {}: {what}", claim.metadata.name)))
    };
    let [request] = claim.spec.devices.requests.as_slice() else {
        return refuse("it has several requests; Berth allocates claims of one request".into());
    };
    let Some(exactly) = &request.exactly else {
        return refuse("it lists alternatives; Berth allocates claims that ask for exactly one thing".into());
    };
    if !claim.spec.devices.constraints.is_empty() {
        return refuse("it has constraints between devices, which Berth does not know".into());
    }
    if exactly.admin_access || exactly.allocation_mode == "All" {
        return refuse(
            "it asks for all devices or for administrative access, which quota cannot hold".into(),
        );
    }
    let models = match models(exactly.selectors.iter().map(|selector| selector.cel.expression.as_str())) {
        Ok(models) => models,
        Err(expression) => {
            return refuse(format!(
                "Berth cannot honour the selector `{expression}`; it knows device.attributes[\"{}\"].{} == \"...\"",
                names::DRIVER,
                names::ATTRIBUTE_MODEL,
            ));
        }
    };
    let Some(devices) = NonZeroU8::new(u8::try_from(exactly.count.unwrap_or(1)).unwrap_or(0)) else {
        return refuse("it asks for no device, or for more than any node has".into());
    };
    let capacity = exactly.capacity.as_ref().map(|capacity| &capacity.requests);
    let of = |name: &str| capacity.and_then(|requests| requests.get(name)).map(String::as_str);
    let gpu = match (of(names::CAPACITY_SHARE), of(names::CAPACITY_MEMORY)) {
        (None, None) => GpuRequest::Whole(devices),
        (Some(text), _) => match share(text) {
            Some(Share::WHOLE) => GpuRequest::Whole(devices),
            Some(share) => GpuRequest::Fraction { share, devices },
            None => {
                return refuse(format!(
                    "a share of {text} is not between 1 and 1000000, which is a whole device"
                ));
            }
        },
        (None, Some(text)) => match quantity::bytes(text).ok().and_then(|bytes| NonZeroU64::new(bytes.0)) {
            Some(bytes) => GpuRequest::Memory { bytes, devices },
            None => return refuse(format!("{text} of memory is not an amount")),
        },
    };
    Ok(ClaimAsk { gpu, models })
}

/// The models that selectors name, or the first selector that says something else.
fn models<'a>(expressions: impl Iterator<Item = &'a str>) -> Result<BTreeSet<Name>, &'a str> {
    let mut models = BTreeSet::new();
    for expression in expressions {
        let squeezed: String = expression.chars().filter(|one| !one.is_whitespace()).collect();
        let driver = format!("device.driver==\"{}\"", names::DRIVER);
        let squeezed = squeezed.replace(&driver, "").replace("&&", "");
        if squeezed.is_empty() {
            continue;
        }
        let model = squeezed
            .strip_prefix(&format!("device.attributes[\"{}\"].{}==\"", names::DRIVER, names::ATTRIBUTE_MODEL))
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|model| !model.contains('"'));
        // Several selectors hold together, and no device is of two models.
        match model {
            Some(model) if models.is_empty() || models.contains(model) => models.insert(model.into()),
            _ => return Err(expression),
        };
    }
    Ok(models)
}
