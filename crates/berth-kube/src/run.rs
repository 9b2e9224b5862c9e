//! The process: leads, watches, decides, writes.
//!
//! ```text
//! lease --> watches --News--> one thread: World --Effect--> Writer --News--> ...
//! ```

pub use crate::write::REQUESTS_AT_ONCE;

use crate::{
    api,
    health::Health,
    lease::{Fence, Leadership, REQUEST},
    seen::{
        Key, Text,
        objects::{
            ClaimObject, NamespaceObject, NodeObject, PodGroupObject, PodObject, SliceObject,
            StorageClassObject, VolumeClaimObject, VolumeObject,
        },
    },
    watch::{Followed, News, follow},
    world::{Effect, Seen, Settings, World, makers_of},
    write::{Ledgers, Requests, WriteError, Writer},
};
use anyhow::{Context, Result, bail};
use berth_types::{Policy, State, Time};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::version::Info,
};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashSet},
    net::SocketAddr,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::task::JoinSet;

/// News that are taken at once, so that a flood is decided in a few plans and none of them waits for its end.
const AT_ONCE: usize = 20_000;
/// Explanations between two looks at the news.
const EXPLANATIONS: usize = 4;
/// Explanations that are found anew at one time.
const RENEWALS: usize = 32;
/// Between tries of something that fails.
const PAUSE: Duration = Duration::from_millis(300);
/// The shortest sleep.
const NAP: Duration = Duration::from_millis(2);
/// The longest wait for a list of ledgers.
const LIST: Duration = Duration::from_secs(10);
/// Claims that are looked at together when the lead is taken over.
const CLAIMS_AT_ONCE: usize = 32;
/// The longest sleep.
const SLEEP: Duration = Duration::from_secs(60);
/// The oldest Kubernetes that has what is needed.
const OLDEST: u32 = 34;

/// How the operator runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace of its lease.
    pub namespace: String,
    /// Who it is; unique for each process.
    pub identity: String,
    /// Settings of the engine.
    pub policy: Policy,
    /// Where it tells whether it is well.
    pub health: Option<SocketAddr>,
}

impl Options {
    /// Usual settings for a process in this namespace.
    pub fn new(namespace: impl Into<String>) -> Self {
        let mut random = [0u8; 6];
        getrandom::fill(&mut random).expect("the system has random numbers");
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "berth".into());
        Self {
            namespace: namespace.into(),
            identity: format!("{host}-{random}"),
            policy: Policy::default(),
            health: None,
        }
    }
}

/// A client as the operator needs it: what is tried again, and when, is its own decision.
pub fn client(mut config: Config) -> Result<Client> {
    config.default_retry = false;
    config.read_timeout = None;
    Client::try_from(config).context("the cluster's address or certificates cannot be used")
}

/// The cluster that a file names, or the one this process runs in.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    match kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("{} cannot be read", path.display()))?;
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            config.with_context(|| format!("{} cannot be used", path.display()))
        }
        None => Config::infer().await.context("no cluster is known; set KUBECONFIG"),
    }
}

/// Makes Berth's resources known to a cluster, and waits until it serves them.
pub async fn install(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in api::crds() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let parameters = PatchParams::apply(crate::names::MANAGER).force();
        definitions
            .patch(&name, &parameters, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("{name} is refused"))?;
        loop {
            let found = definitions.get(&name).await?;
            let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|one| one.type_ == "Established" && one.status == "True") {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Waits until somebody asks for the end.
pub async fn stop_asked() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).expect("signals can be heard");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}

/// Leads when it may, and places Pods until told to stop or until somebody else leads.
pub async fn run(client: Client, options: Options, stop: impl Future<Output = ()>) -> Result<()> {
    tokio::pin!(stop);
    let version = tokio::select! {
        version = version(&client) => version?,
        () = &mut stop => return Ok(()),
    };
    new_enough(&version)?;
    let health = Health::new();
    if let Some(address) = options.health {
        health.serve(address).await?;
    }
    let fence = Fence::closed();
    let leadership =
        Leadership::new(client.clone(), &options.namespace, "berth", &options.identity, fence.clone());
    let lease = tokio::select! {
        lease = leadership.acquire() => lease.context("the lease cannot be had; apply the manifest that `berth operator manifest` writes, with its roles")?,
        () = &mut stop => return Ok(()),
    };
    tracing::info!(identity = options.identity, "leads");
    let requests = Requests::new(client.clone(), fence.clone());
    let keep = leadership.keep(lease);
    tokio::pin!(keep);
    let ledgers = tokio::select! {
        why = &mut keep => bail!("stopped leading: {why}"),
        ledgers = take_over(&client, &requests) => ledgers,
        () = &mut stop => return end(&fence, &requests, &leadership).await,
    };
    let ledgers = match ledgers {
        Ok(ledgers) => ledgers,
        Err(error) => {
            end(&fence, &requests, &leadership).await?;
            return Err(error);
        }
    };
    let (news, heard) = channel();
    let writer = Writer::new(requests.clone(), ledgers, news.clone());
    let (mut kinds, mut watches) = watch_all(&client, &news);
    watch_for_deciding(&client, &news, &mut kinds, &mut watches);
    let (over, ended) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let policy = options.policy.clone();
    let deciding = std::thread::Builder::new().name("world".into()).spawn(move || {
        let _in_runtime = runtime.enter();
        let result = decide(World::new(Settings { policy }), &heard, &writer, &health, kinds);
        let _ = over.send(result);
    });
    let deciding = deciding.context("a thread cannot be started")?;
    let result = tokio::select! {
        why = &mut keep => Err(anyhow::anyhow!("stopped leading: {why}")),
        result = ended => result.unwrap_or_else(|_| bail!("the deciding thread ended")),
        () = &mut stop => Ok(()),
    };
    let _ = news.send(News::Stop);
    end(&fence, &requests, &leadership).await?;
    tokio::task::spawn_blocking(move || deciding.join()).await.ok();
    result
}

/// The version of the API server, once there is one.
async fn version(client: &Client) -> Result<Info> {
    let mut is_told = false;
    loop {
        let asked = tokio::time::timeout(REQUEST, client.apiserver_version()).await;
        let error = match asked {
            Ok(Ok(version)) => return Ok(version),
            Ok(Err(kube::Error::Api(status))) => {
                bail!("the API server does not say what it is: {} ({})", status.message, status.code)
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".into(),
        };
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(error, "the API server does not answer; it is asked until it does");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Refuses a Kubernetes that does not have what is needed.
fn new_enough(version: &Info) -> Result<()> {
    let number =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    match (number(&version.major), number(&version.minor)) {
        (Some(1), Some(minor)) if minor < OLDEST => {
            bail!("Kubernetes 1.{minor} is too old: Berth needs 1.{OLDEST} or newer; upgrade the cluster")
        }
        _ => Ok(()),
    }
}

/// Ends leading: nothing begins any more, what is under way ends, and only then may somebody else lead.
async fn end(fence: &Fence, requests: &Requests, leadership: &Leadership) -> Result<()> {
    fence.close();
    requests.quiet().await;
    leadership.release().await;
    Ok(())
}

/// Follows each of these kinds.
macro_rules! watch {
    ($kinds:expr, $watches:expr, $client:expr, $news:expr; $($kind:ty),*) => {$(
        $kinds.insert(<$kind>::PATH);
        $watches.spawn(follow::<$kind>($client.clone(), $news.clone()));
    )*};
}

/// Watches everything that matters, for as long as the set of watches is kept; gives what must have been listed before
/// anything is decided.
pub(crate) fn watch_all(client: &Client, news: &Sender<News>) -> (BTreeSet<&'static str>, JoinSet<()>) {
    let (mut kinds, mut watches) = (BTreeSet::new(), JoinSet::new());
    watch!(kinds, watches, client, news; NodeObject, PodObject, SliceObject, ClaimObject, PodGroupObject);
    watch!(kinds, watches, client, news; api::Department, api::Project, api::NodePool, api::Workload);
    (kinds, watches)
}

/// Watches also what matters only to whoever decides.
fn watch_for_deciding(
    client: &Client,
    news: &Sender<News>,
    kinds: &mut BTreeSet<&'static str>,
    watches: &mut JoinSet<()>,
) {
    watch!(kinds, watches, client, news; NamespaceObject, VolumeClaimObject, VolumeObject, StorageClassObject);
}

/// Watches also what people are shown who ask for their volumes.
pub(crate) fn watch_volume_claims(
    client: &Client,
    news: &Sender<News>,
    kinds: &mut BTreeSet<&'static str>,
    watches: &mut JoinSet<()>,
) {
    watch!(kinds, watches, client, news; VolumeClaimObject);
}

/// What the API server says, as the engine understands it: nodes, owners, and work where it is. Nothing is decided or written.
pub async fn look(client: Client) -> Result<State> {
    let (news, heard) = channel();
    let (mut unlisted, watches) = watch_all(&client, &news);
    let looked = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        while !unlisted.is_empty() {
            match heard.recv_timeout(SLEEP).context("the API server does not answer")? {
                News::Seen(one) => seen.push(one),
                News::Listed(kind) | News::Absent(kind) => {
                    unlisted.remove(kind);
                }
                News::Failed { kind, message } | News::Forbidden { kind, message } => {
                    bail!("{kind} cannot be read: {message}")
                }
                News::Stop => bail!("somebody asked for the end"),
            }
        }
        let mut world = World::new(Settings { policy: Policy::default() });
        Ok(world.see(now(), seen))
    });
    let state = looked.await.context("looking was interrupted")?;
    drop(watches);
    state
}

/// Takes over from whoever led before: a claim that a ledger names and that has nothing was about to get something, and a
/// request of that kind may still be under way. The claim is written to, so that such a request finds another version.
async fn take_over(client: &Client, requests: &Requests) -> Result<Ledgers> {
    let ledgers: Api<api::DeviceLedger> = Api::all(client.clone());
    let found = loop {
        let parameters = ListParams::default();
        let asked = tokio::time::timeout(LIST, ledgers.list(&parameters)).await;
        let late = || Err(kube::Error::Service("the API server did not answer in time".into()));
        match asked.unwrap_or_else(|_| late()) {
            Ok(found) => break found.items,
            Err(kube::Error::Api(status)) if status.code == 404 => bail!(
                "the cluster does not know Berth's resources; apply the manifest that `berth operator manifest` writes"
            ),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                bail!("Berth may not read its ledgers of devices ({}); apply its roles anew", status.message)
            }
            Err(error) => {
                requests.epoch().context("ledgers of devices cannot be read in time")?;
                tracing::warn!(%error, "ledgers of devices cannot be read yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    let ledgers = Ledgers::found(found);
    let claims = futures_util::stream::iter(ledgers.claims());
    claims
        .map(|(claim, uid)| take_over_claim(requests, &ledgers, claim, uid))
        .buffer_unordered(CLAIMS_AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(ledgers)
}

async fn take_over_claim(requests: &Requests, ledgers: &Ledgers, claim: Key, uid: Text) -> Result<()> {
    let path =
        format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name);
    let found: ClaimObject = match requests.get(&path).await {
        Ok(found) => serde_json::from_slice(&found).context("a claim cannot be read")?,
        Err(WriteError::Refused { code: 404, .. }) => {
            ledgers.released(&claim);
            return Ok(());
        }
        Err(error) => return Err(error).context("a claim cannot be read"),
    };
    if *found.metadata.uid != *uid {
        ledgers.released_earlier(&claim, &uid);
        return Ok(());
    }
    if let Some(allocation) = &found.status.allocation {
        ledgers.is_only_on(&claim, &allocation.nodes());
        return Ok(());
    }
    let epoch = requests.epoch()?.to_string();
    let body = json!({ "metadata": { "uid": &*uid, "annotations": { crate::names::EPOCH: epoch } } });
    match requests.merge(&path, &body).await {
        Ok(written) => {
            // Whatever was under way came before, or never will.
            let written: ClaimObject = serde_json::from_slice(&written).context("a claim cannot be read")?;
            match &written.status.allocation {
                None => ledgers.released(&claim),
                Some(allocation) => ledgers.is_only_on(&claim, &allocation.nodes()),
            }
            Ok(())
        }
        Err(WriteError::Refused { code: 404 | 409, .. }) => {
            ledgers.released(&claim);
            Ok(())
        }
        Err(error) => Err(error).context("a claim cannot be taken over"),
    }
}

/// Kinds that cannot be read.
#[derive(Default)]
struct Missing(BTreeSet<&'static str>);

impl Missing {
    /// Says, once, what is missing and what to do, and goes on without it where that is possible.
    fn note(&mut self, kind: &'static str, why: &str, unlisted: &mut BTreeSet<&'static str>) {
        let is_new = self.0.insert(kind);
        // Without devices nobody needs to know who has them; with them, everybody does.
        let without = [PodGroupObject::PATH, SliceObject::PATH].contains(&kind)
            || (kind == ClaimObject::PATH && self.0.contains(SliceObject::PATH));
        if without {
            unlisted.remove(kind);
        }
        if kind == SliceObject::PATH && self.0.contains(ClaimObject::PATH) {
            unlisted.remove(ClaimObject::PATH);
        }
        if is_new && without {
            tracing::warn!(kind, why, "{}; Berth goes on without", remedy(kind));
        } else if is_new {
            tracing::error!(kind, why, "{}; Berth waits for it", remedy(kind));
        }
    }
}

/// What whoever runs the cluster can do about a kind that cannot be read.
fn remedy(kind: &str) -> &'static str {
    if kind == PodGroupObject::PATH {
        "native groups of Pods are not known: name groups by labels, or turn on the API scheduling.k8s.io/v1alpha2"
    } else if kind == SliceObject::PATH || kind == ClaimObject::PATH {
        "devices cannot be shared: turn on the API resource.k8s.io/v1 and apply Berth's roles anew; GPUs are counted until then"
    } else {
        "apply the manifest that `berth operator manifest` writes, with its resources and roles"
    }
}

/// Everything there is, once all of it has been listed; nothing when somebody asks for the end before.
pub(crate) fn first_news(heard: &Receiver<News>, mut unlisted: BTreeSet<&'static str>) -> Option<Vec<Seen>> {
    let (mut first, mut missing) = (Vec::new(), Missing::default());
    while !unlisted.is_empty() {
        match heard.recv() {
            Ok(News::Seen(seen)) => first.push(seen),
            Ok(News::Listed(kind)) => {
                unlisted.remove(kind);
            }
            Ok(News::Absent(kind)) => missing.note(kind, "the cluster does not have it", &mut unlisted),
            Ok(News::Forbidden { kind, message }) => missing.note(kind, &message, &mut unlisted),
            Ok(News::Failed { kind, message }) => tracing::warn!(kind, message, "cannot be read yet"),
            Ok(News::Stop) | Err(_) => return None,
        }
    }
    Some(first)
}

/// Decides, until told to stop.
fn decide(
    mut world: World,
    heard: &Receiver<News>,
    writer: &Writer,
    health: &Health,
    unlisted: BTreeSet<&'static str>,
) -> Result<()> {
    let Some(mut first) = first_news(heard, unlisted) else { return Ok(()) };
    // What runs is counted for whom it runs from the first decision on.
    let makers = writer.read_makers(makers_of(&first));
    first.extend(tokio::runtime::Handle::current().block_on(makers));
    let there: HashSet<Text> = first
        .iter()
        .filter_map(|seen| match seen {
            Seen::Pod(pod) if !pod.is_over() => Some(pod.uid.clone()),
            _ => None,
        })
        .collect();
    writer.keep_only(|pod| there.contains(pod));
    let (began, news) = (Instant::now(), first.len());
    let effects = world.first_look(now(), first);
    note(began, news, &effects);
    tracing::info!(nodes = world.engine().nodes().len(), "everything is known");
    writer.carry_out(effects);
    let mut seen = Vec::new();
    loop {
        health.decided();
        // Never in a circle, whatever instant is named.
        let wait = world
            .next_instant()
            .map_or(SLEEP, |at| Duration::from_millis(at.since(now()).0).clamp(NAP, SLEEP));
        let mut next = if world.has_unexplained() {
            heard.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        } else {
            heard.recv_timeout(wait)
        };
        let idle = next.is_err();
        loop {
            match next {
                Ok(News::Seen(one)) => {
                    match &one {
                        Seen::ClaimGone(key) => writer.released(key),
                        Seen::PodGone(uid) => writer.released_by(uid),
                        Seen::Pod(pod) if pod.is_over() => writer.released_by(&pod.uid),
                        _ => {}
                    }
                    seen.push(one);
                }
                Ok(News::Listed(_) | News::Absent(_)) => {}
                Ok(News::Failed { kind, message } | News::Forbidden { kind, message }) => {
                    tracing::warn!(kind, message, "cannot be read")
                }
                Ok(News::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => break,
            }
            if seen.len() >= AT_ONCE {
                break;
            }
            next = heard.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        let (began, news) = (Instant::now(), seen.len());
        let effects = world.step(now(), seen.drain(..));
        note(began, news, &effects);
        writer.carry_out(effects);
        if idle && world.has_unexplained() {
            writer.carry_out(world.explain_some(EXPLANATIONS));
        } else if idle {
            writer.carry_out(world.renew_some(now(), RENEWALS));
        }
    }
}

/// Notes how long a step took that decided something.
fn note(began: Instant, news: usize, effects: &[Effect]) {
    let micros = began.elapsed().as_micros() as u64;
    if effects.is_empty() || !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let count = |is: fn(&Effect) -> bool| effects.iter().filter(|effect| is(effect)).count();
    let starts = count(|effect| matches!(effect, Effect::Start(_)));
    let evictions = count(|effect| matches!(effect, Effect::Evict(_)));
    tracing::debug!(micros, news, starts, evictions, effects = effects.len(), "decided");
}

pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kubernetes_is_refused_with_what_to_do() {
        let version = |minor: &str| Info { major: "1".into(), minor: minor.into(), ..Info::default() };
        for minor in ["34", "36", "36+", "100"] {
            new_enough(&version(minor)).expect("it has what is needed");
        }
        for minor in ["9", "33", "33+"] {
            let error = new_enough(&version(minor)).expect_err("it does not").to_string();
            assert!(error.contains("1.34 or newer; upgrade"), "{error}");
        }
    }

    #[test]
    fn what_can_be_done_without_is_and_the_rest_is_waited_for() {
        let kinds =
            [NodeObject::PATH, PodObject::PATH, SliceObject::PATH, ClaimObject::PATH, PodGroupObject::PATH];
        let missing = |these: &[&'static str]| {
            let (mut missing, mut unlisted) = (Missing::default(), BTreeSet::from(kinds));
            these.iter().for_each(|kind| missing.note(kind, "no", &mut unlisted));
            kinds.into_iter().filter(|kind| !unlisted.contains(kind)).collect::<Vec<_>>()
        };
        assert_eq!(missing(&[PodGroupObject::PATH]), [PodGroupObject::PATH]);
        assert!(missing(&[NodeObject::PATH, PodObject::PATH]).is_empty());
        assert!(missing(&[ClaimObject::PATH]).is_empty(), "devices are known, so who has them must be");
        for both in [[SliceObject::PATH, ClaimObject::PATH], [ClaimObject::PATH, SliceObject::PATH]] {
            assert_eq!(missing(&both), [SliceObject::PATH, ClaimObject::PATH], "GPUs are counted then");
        }
    }
}
