//! Claims of devices, and their allocation as the API server and the driver of a node read it.

use super::{NodeGpus, Run, SeatNode, bytes_quantity, claim_name};
use crate::{
    convert::{self, Refusal},
    names, quantity,
};
use berth_types::{Bytes, GpuRequest, Place, Share};
use k8s_openapi::{
    api::{
        core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
        resource::v1::{
            AllocationResult, CELDeviceSelector, CapacityRequirements, DeviceAllocationResult, DeviceClaim,
            DeviceRequest, DeviceRequestAllocationResult, DeviceSelector, ExactDeviceRequest, ResourceClaim,
            ResourceClaimConsumerReference, ResourceClaimSpec, ResourceClaimStatus,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::OwnerReference},
};
use kube::{ResourceExt, api::ObjectMeta};
use std::collections::BTreeMap;

/// The claim of one worker; none when it asks for no GPU, or sits where GPUs are counted. It goes with its owner: the
/// Pod it is for, or the workload when the Pod is made after it.
pub fn claim(
    run: &Run<'_>,
    rank: u32,
    owner: Option<OwnerReference>,
) -> Result<Option<ResourceClaim>, Refusal> {
    let workload = run.workload;
    let request = convert::gpu_request(&workload.spec)?;
    let Some(seat) = run.seat(rank) else { return Ok(None) };
    if request == GpuRequest::None || matches!(seat.node.gpus, NodeGpus::Counted { .. }) {
        return Ok(None);
    }
    let metadata = ObjectMeta {
        name: Some(claim_name(&workload.name_any(), run.number, rank, seat.turn)),
        namespace: workload.namespace(),
        labels: Some(run.labels(seat)),
        owner_references: owner.map(|owner| vec![owner]),
        // A claim that is deleted keeps its devices until its Pod is gone.
        finalizers: Some(vec![names::CLAIM_FINALIZER.into()]),
        ..ObjectMeta::default()
    };
    let devices = DeviceClaim {
        requests: Some(vec![device_request(request, &workload.spec.gpu_models)]),
        ..DeviceClaim::default()
    };
    Ok(Some(ResourceClaim { metadata, spec: ResourceClaimSpec { devices: Some(devices) }, status: None }))
}

/// Asks for so many devices, and so much of each.
fn device_request(request: GpuRequest, models: &[String]) -> DeviceRequest {
    let asked = match request {
        GpuRequest::Memory { bytes, .. } => (names::CAPACITY_MEMORY, bytes_quantity(Bytes(bytes.get()))),
        GpuRequest::Fraction { share, .. } => (names::CAPACITY_SHARE, share_quantity(share)),
        GpuRequest::Whole(_) | GpuRequest::None => (names::CAPACITY_SHARE, share_quantity(Share::WHOLE)),
    };
    let requests = BTreeMap::from([(asked.0.to_owned(), asked.1)]);
    let models: Vec<String> = models.iter().map(|model| cel_text(model)).collect();
    let selector = DeviceSelector {
        cel: Some(CELDeviceSelector {
            expression: format!(
                "device.attributes[{}].{} in [{}]",
                cel_text(names::DRIVER),
                names::ATTRIBUTE_MODEL,
                models.join(", ")
            ),
        }),
    };
    DeviceRequest {
        name: names::CLAIM_REQUEST.into(),
        exactly: Some(ExactDeviceRequest {
            device_class_name: names::DEVICE_CLASS.into(),
            allocation_mode: Some("ExactCount".into()),
            count: Some(i64::from(request.devices())),
            capacity: Some(CapacityRequirements { requests: Some(requests) }),
            selectors: (!models.is_empty()).then(|| vec![selector]),
            ..ExactDeviceRequest::default()
        }),
        first_available: None,
    }
}

/// A text as CEL writes it; JSON escapes are a part of what CEL reads.
fn cel_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The status of a claim whose devices were decided: which, how much of each, where, and for whom. `share_ids` are as
/// many new UUIDs as the place has devices, and `pod` is the name and the identity of the Pod.
pub fn claim_status(
    place: &Place,
    node: &SeatNode,
    share_ids: &[String],
    pod: (&str, &str),
) -> Result<ResourceClaimStatus, Refusal> {
    let impossible = |text: String| Refusal::new("NoSuchDevice", format!("node {}: {text}", node.name));
    let NodeGpus::Claimed { pool, devices } = &node.gpus else {
        return Err(impossible("counts its GPUs and has none that can be claimed".into()));
    };
    if share_ids.len() != place.devices.len() {
        return Err(impossible("needs one new identity for each share".into()));
    }
    let results = place.devices.iter().zip(share_ids).map(|(taken, share_id)| {
        let device = devices.get(usize::from(taken.device));
        let device = device.ok_or_else(|| impossible(format!("has no device {}", taken.device)))?;
        let consumed = BTreeMap::from([
            (names::CAPACITY_SHARE.to_owned(), share_quantity(taken.share)),
            (names::CAPACITY_MEMORY.to_owned(), bytes_quantity(taken.share.memory(device.memory))),
        ]);
        Ok(DeviceRequestAllocationResult {
            request: names::CLAIM_REQUEST.into(),
            driver: names::DRIVER.into(),
            pool: pool.clone(),
            device: device.name.clone(),
            share_id: Some(share_id.clone()),
            consumed_capacity: Some(consumed),
            ..DeviceRequestAllocationResult::default()
        })
    });
    let results: Vec<DeviceRequestAllocationResult> = results.collect::<Result<_, Refusal>>()?;
    let here = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.name.clone()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![here]), match_expressions: None };
    let reserved = ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".into(),
        name: pod.0.into(),
        uid: pod.1.into(),
    };
    Ok(ResourceClaimStatus {
        allocation: Some(AllocationResult {
            devices: Some(DeviceAllocationResult { results: Some(results), config: None }),
            node_selector: Some(NodeSelector { node_selector_terms: vec![term] }),
            allocation_timestamp: None,
        }),
        devices: None,
        reserved_for: Some(vec![reserved]),
    })
}

fn share_quantity(share: Share) -> Quantity {
    Quantity(quantity::share_text(share))
}
