//! Work on a real cluster, an operator that can be killed, and what must hold when all is quiet again.
#![allow(dead_code, reason = "each test uses a part of it")]

mod operator;
mod rules;

pub(crate) use operator::Operator;

use crate::mirror::{until, until_there};
use berth_kube::api;
use berth_sim::random::SplitMix64;
use berth_testbed::Cluster;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::Pod,
    policy::v1::PodDisruptionBudget,
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long it may take until all is quiet.
const LIMIT: Duration = Duration::from_secs(100);
const POLL: Duration = Duration::from_millis(200);

/// What was done, and what was found in between.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    pub(crate) restarts: u64,
    pub(crate) nodes_lost: u64,
    pub(crate) pods_deleted: u64,
    pub(crate) conflicting_writes: u64,
    pub(crate) budgets: u64,
    gangs: u64,
    half_bound: u64,
    made_unbound: u64,
    left_claims: u64,
    settled: u64,
    slowest: Duration,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "faults: {} kills, {} paused leaders, {} restarts of the control plane, {} nodes lost, {} Pods deleted while bound, \
             {} conflicting writes, {} budgets; {} gangs; found after kills: {} half-bound gangs, {} Pods made and not bound, \
             {} claims allocated to Pods not bound; quiet {} times (slowest {:.1} s): no half gang, no share above 1,000,000, no finding, \
             no quota broken, everybody who waits knows why",
            self.kills,
            self.pauses,
            self.restarts,
            self.nodes_lost,
            self.pods_deleted,
            self.conflicting_writes,
            self.budgets,
            self.gangs,
            self.half_bound,
            self.made_unbound,
            self.left_claims,
            self.settled,
            self.slowest.as_secs_f64(),
        )
    }
}

/// A project with work in it.
pub(crate) struct Yard {
    client: Client,
    namespace: String,
    drawn: u64,
}

/// Many write at once until told to stop.
pub(crate) struct Writers {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    running: tokio::task::JoinHandle<()>,
}

impl Writers {
    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.running.await;
        self.written.load(Ordering::Relaxed)
    }
}

impl Yard {
    pub(crate) async fn new(client: Client) -> Self {
        let yard = Self { client, namespace: "berth-yard".into(), drawn: 0 };
        yard.project("yard", 16).await;
        yard.create::<ResourceClaimTemplate>(json!({
            "metadata": { "name": "half" },
            "spec": { "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": {
                "deviceClassName": "gpu.berth.dev", "capacity": { "requests": { "share": "500000" } },
            } }] } } },
        }))
        .await;
        yard
    }

    async fn project(&self, name: &str, quota: u32) {
        let projects: Api<api::Project> = Api::all(self.client.clone());
        let project = json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Project", "metadata": { "name": name }, "spec": { "quota": quota },
        });
        let project = serde_json::from_value(project).expect("a project");
        projects.create(&PostParams::default(), &project).await.expect("the project is accepted");
        until_there(&self.client, &format!("berth-{name}")).await;
    }

    fn api<K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + serde::de::DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).expect("an object");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("it is accepted");
    }

    /// One to three gangs: of Workloads, of Pods by labels with counted GPUs, of Pods by labels with claims.
    pub(crate) async fn submit_some(&mut self, random: &mut SplitMix64, counts: &mut Counts) {
        for _ in 0..1 + random.below(3) {
            self.drawn += 1;
            counts.gangs += 1;
            let (name, size) = (format!("g{}", self.drawn), 2 + random.below(7));
            match random.below(4) {
                kind @ (0 | 1) => {
                    let gpus = if kind == 0 { "0.5".to_owned() } else { (1 + random.below(2)).to_string() };
                    self.create::<api::Workload>(json!({
                        "apiVersion": "berth.dev/v1alpha1", "kind": "Workload", "metadata": { "name": name },
                        "spec": { "kind": "distributed", "image": "none", "workers": size, "gpus": gpus, "gracePeriod": "1s" },
                    }))
                    .await;
                }
                2 => {
                    let gpus = 1 + random.below(2);
                    for member in 0..size {
                        let resources = json!({ "limits": { "nvidia.com/gpu": gpus } });
                        self.member(&name, size, member, &resources, &Value::Null).await;
                    }
                }
                _ => {
                    let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": "half" }]);
                    for member in 0..size {
                        self.member(&name, size, member, &json!({ "claims": [{ "name": "gpu" }] }), &claims)
                            .await;
                    }
                }
            }
        }
    }

    async fn member(&self, group: &str, size: u64, member: u64, resources: &Value, claims: &Value) {
        let mut pod = json!({
            "metadata": {
                "name": format!("{group}-{member}"),
                "labels": { "berth.dev/group": group },
                "annotations": { "berth.dev/group-size": size.to_string() },
            },
            "spec": {
                "schedulerName": "berth", "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": "none", "resources": resources }],
            },
        });
        if !claims.is_null() {
            pod["spec"]["resourceClaims"] = claims.clone();
        }
        self.create::<Pod>(pod).await;
    }

    async fn pods(&self) -> Vec<Pod> {
        self.list::<Pod>().await
    }

    async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        self.api::<K>().list(&ListParams::default()).await.expect("the API server answers").items
    }

    /// What a killed operator left. Half a gang may be there for a while; a device that two Pods have on their nodes may not.
    pub(crate) async fn count_halves(&self, counts: &mut Counts) {
        let pods = self.pods().await;
        let twice = rules::given_twice(&pods, &self.list().await);
        assert!(twice.is_empty(), "{twice:?}");
        for gang in rules::gangs(&pods, &self.list().await) {
            counts.half_bound += u64::from(gang.bound > 0 && gang.bound < gang.min);
        }
        let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let made = pods.iter().filter(|pod| pod.labels().contains_key("berth.dev/rank") && !is_bound(pod));
        counts.made_unbound += made.count() as u64;
        let claims: Vec<ResourceClaim> = self.list().await;
        let is_left = |claim: &&ResourceClaim| {
            let users =
                claim.status.as_ref().and_then(|status| status.reserved_for.clone()).unwrap_or_default();
            users
                .iter()
                .any(|user| pods.iter().any(|pod| pod.uid().as_ref() == Some(&user.uid) && !is_bound(pod)))
        };
        counts.left_claims += claims.iter().filter(is_left).count() as u64;
    }

    /// The holder of the lease is known to be dead, so nobody needs to wait for its end.
    pub(crate) async fn free_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "berth-system");
        let free = Patch::Merge(json!({ "spec": { "holderIdentity": null } }));
        let _ = leases.patch("berth", &PatchParams::default(), &free).await;
    }

    /// Waits until the operator has renewed its lease since now, and starts it again if it lost the lease meanwhile. Until then a
    /// lease from before an outage can still run out.
    pub(crate) async fn until_lease_renewed(&self, operator: &mut Operator, cluster: &Cluster) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "berth-system");
        let renewed = async || leases.get("berth").await.ok()?.spec?.renew_time;
        let (before, began) = (renewed().await, Instant::now());
        loop {
            if !operator.is_running() {
                eprintln!("the operator lost its lease; it is started again");
                *operator = Operator::start(cluster, "again");
            } else if renewed().await.is_some_and(|now| Some(now) != before) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "the lease is not renewed: {}", operator.log());
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) async fn until_led_by_another(&self, paused: &Operator) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "berth-system");
        let before =
            leases.get("berth").await.expect("there is a lease").spec.and_then(|spec| spec.holder_identity);
        until("another leads", async || {
            let lease = leases.get("berth").await.expect("there is a lease");
            lease.spec.and_then(|spec| spec.holder_identity) != before
        })
        .await;
        assert!(paused.is_running(), "it only sleeps");
    }

    pub(crate) fn write_all_the_time(&self) -> Writers {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (pods, claims) = (self.api::<Pod>(), self.api::<ResourceClaim>());
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let running = tokio::spawn(async move {
            let parameters = PatchParams::default();
            while !stopped.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed);
                let touch =
                    Patch::Merge(json!({ "metadata": { "annotations": { "touched": number.to_string() } } }));
                for pod in pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
                {
                    let done = pods.patch(&pod.name_any(), &parameters, &touch).await.is_ok();
                    count.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                for claim in
                    claims.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
                {
                    let done = claims.patch(&claim.name_any(), &parameters, &touch).await.is_ok();
                    count.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Writers { stop, written, running }
    }

    /// Deletes some Pods, whatever is being done with them.
    pub(crate) async fn delete_pods(&self, random: &mut SplitMix64, counts: &mut Counts) {
        for pod in self.pods().await {
            if random.percent(20) {
                let gone = self.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await;
                counts.pods_deleted += u64::from(gone.is_ok());
            }
        }
    }

    /// Removes most of what there is, so that there is room for more.
    pub(crate) async fn clear_some(&self, random: &mut SplitMix64) {
        if random.percent(30) {
            return;
        }
        for workload in self.list::<api::Workload>().await {
            if random.percent(80) {
                let _ =
                    self.api::<api::Workload>().delete(&workload.name_any(), &DeleteParams::default()).await;
            }
        }
        let groups: std::collections::BTreeSet<String> =
            self.pods().await.iter().filter_map(|pod| pod.labels().get("berth.dev/group").cloned()).collect();
        for group in groups {
            if random.percent(80) {
                let all = ListParams::default().labels(&format!("berth.dev/group={group}"));
                let _ = self.api::<Pod>().delete_collection(&DeleteParams::default(), &all).await;
            }
        }
    }

    /// Borrowed work that budgets keep, and somebody who wants it back.
    pub(crate) async fn borrow_behind_budgets(&mut self, counts: &mut Counts) {
        for member in 0..4 {
            let pod = json!({
                "metadata": { "name": format!("kept-{member}"), "labels": { "kept": member.to_string() } },
                "spec": {
                    "schedulerName": "berth", "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": 4 } } }],
                },
            });
            self.create::<Pod>(pod).await;
            self.create::<PodDisruptionBudget>(json!({
                "metadata": { "name": format!("kept-{member}") },
                "spec": { "minAvailable": 1, "selector": { "matchLabels": { "kept": member.to_string() } } },
            }))
            .await;
            counts.budgets += 1;
        }
        until("all of them run", async || {
            let pods = self.pods().await;
            pods.iter().all(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
        })
        .await;
        let budgets: Api<PodDisruptionBudget> = self.api();
        until("the budgets are counted", async || {
            let found = budgets.list(&ListParams::default()).await.expect("the API server answers").items;
            found.iter().all(|one| one.status.as_ref().is_some_and(|status| status.expected_pods == Some(1)))
        })
        .await;
        let projects: Api<api::Project> = Api::all(self.client.clone());
        let none = Patch::Merge(json!({ "spec": { "quota": 0 } }));
        projects.patch("yard", &PatchParams::default(), &none).await.expect("it is there");
        self.project("owner", 8).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "berth-owner");
        let wants = json!({
            "metadata": { "name": "wants" },
            "spec": {
                "schedulerName": "berth",
                "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": 4 } } }],
            },
        });
        let wants = serde_json::from_value(wants).expect("a Pod");
        pods.create(&PostParams::default(), &wants).await.expect("it is accepted");
        until("who wants it is told why it waits", async || {
            let pod = pods.get("wants").await.expect("it is there");
            rules::reason(&pod).is_some_and(|reason| !reason.is_empty())
        })
        .await;
        assert_eq!(self.pods().await.len(), 4, "budgets hold");
        budgets.delete("kept-2", &DeleteParams::default()).await.expect("it is there");
        until("without its budget, one gives way", async || {
            pods.get("wants").await.is_ok_and(|pod| pod.spec.is_some_and(|spec| spec.node_name.is_some()))
        })
        .await;
        assert_eq!(self.pods().await.len(), 3, "the one without a budget went");
    }

    /// Waits until all is quiet and as it must be. An operator that ended because it lost its lease is started again, as a
    /// Deployment would.
    pub(crate) async fn settle(
        &self,
        after: &str,
        operator: &mut Operator,
        cluster: &Cluster,
        counts: &mut Counts,
    ) {
        let began = Instant::now();
        loop {
            if !operator.is_running() {
                eprintln!("{after}: the operator ended; it is started again");
                *operator = Operator::start(cluster, "again");
            }
            let broken = match rules::broken(&self.client, &self.namespace).await {
                Ok(broken) => broken,
                Err(error) => format!("the API server does not answer: {error:#}"),
            };
            if broken.is_empty() {
                break;
            }
            assert!(began.elapsed() < LIMIT, "{after}: {broken}\n{}", operator.log());
            tokio::time::sleep(POLL).await;
        }
        counts.settled += 1;
        counts.slowest = counts.slowest.max(began.elapsed());
        eprintln!("{after}: quiet after {:.1} s", began.elapsed().as_secs_f64());
    }
}
