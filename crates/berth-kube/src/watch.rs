//! Watches: each kind of object is listed once and followed from there, for ever.
//!
//! A watch that breaks is resumed where it was. When the server no longer knows that place, everything is listed again, and
//! what is missing is told as gone.

use crate::{
    api, names,
    seen::{
        Key,
        claim::ClaimSeen,
        native::NativeGroupSeen,
        node::{NodeSeen, SliceSeen},
        objects::{
            ClaimObject, NamespaceObject, NodeObject, PodGroupObject, PodObject, SliceObject,
            StorageClassObject, VolumeClaimObject, VolumeObject,
        },
        pod::PodSeen,
        volume::{StorageClassSeen, VolumeClaimSeen, VolumeSeen},
    },
    world::Seen,
};
use futures_util::TryStreamExt;
use kube::{Client, Resource, ResourceExt, core::WatchEvent};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

/// Objects of one page of a list.
const PAGE: usize = 1000;
/// The server ends a watch after this long; one that is silent for longer is dead.
const WATCH: Duration = Duration::from_secs(290);
/// The longest wait for the first words of an answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Between tries of something that fails.
const PAUSE: Duration = Duration::from_millis(500);
/// Between tries of a kind that may not be read.
const FORBIDDEN: Duration = Duration::from_secs(5);
/// Between tries of a kind that the cluster does not have.
const ABSENT: Duration = Duration::from_secs(30);

/// What the watches tell.
#[derive(Debug)]
pub(crate) enum News {
    /// Something is there, changed or gone.
    Seen(Seen),
    /// All there was of a kind has been told.
    Listed(&'static str),
    /// The cluster does not know a kind.
    Absent(&'static str),
    /// Somebody asks for the end.
    Stop,
    /// This process may not read a kind.
    Forbidden { kind: &'static str, message: String },
    /// A kind cannot be read.
    Failed { kind: &'static str, message: String },
}

/// A kind of object that is followed.
pub(crate) trait Followed: DeserializeOwned + Clone + Send + 'static {
    /// Where it is listed.
    const PATH: &'static str;
    /// Its name inside of its kind.
    fn key(&self) -> Key;
    fn version(&self) -> &str;
    /// What is told of it; none when it is none of our business.
    fn seen(self) -> Option<Seen>;
    /// What is told when it is gone.
    fn gone(&self) -> Seen;
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    more: String,
}

/// Follows a kind until nobody listens any more.
pub(crate) async fn follow<T: Followed>(client: Client, news: Sender<News>) {
    let mut follower =
        Follower::<T> { client, news, known: HashMap::new(), unheard: false, kind: PhantomData };
    while !follower.unheard {
        follower.run().await;
    }
}

struct Follower<T: Followed> {
    client: Client,
    news: Sender<News>,
    /// What to tell when something is gone, by name.
    known: HashMap<Key, Seen>,
    /// Nobody listens any more.
    unheard: bool,
    kind: PhantomData<T>,
}

impl<T: Followed> Follower<T> {
    /// Lists, and watches from there for as long as the server knows the place.
    async fn run(&mut self) {
        let mut version = match self.list().await {
            Ok(version) => version,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // The cluster has nothing of this kind, or does not serve it yet.
                self.tell(News::Absent(T::PATH));
                tokio::time::sleep(if T::PATH.contains(names::GROUP) { PAUSE } else { ABSENT }).await;
                return;
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.tell(News::Forbidden { kind: T::PATH, message: status.message });
                tokio::time::sleep(FORBIDDEN).await;
                return;
            }
            Err(error) => {
                self.tell(News::Failed { kind: T::PATH, message: error.to_string() });
                tokio::time::sleep(PAUSE).await;
                return;
            }
        };
        self.tell(News::Listed(T::PATH));
        while !self.unheard {
            match self.watch(&mut version).await {
                Ok(Ended::Stale) => return,
                Ok(Ended::Resumable) => {}
                // Whatever the server has against it, a list says what is.
                Err(kube::Error::Api(status)) => {
                    tracing::debug!(kind = T::PATH, message = status.message, "a watch is refused");
                    tokio::time::sleep(PAUSE).await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(kind = T::PATH, %error, "a watch broke");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn tell(&mut self, news: News) {
        self.unheard |= self.news.send(news).is_err();
    }

    async fn list(&mut self) -> Result<String, kube::Error> {
        let mut before = std::mem::take(&mut self.known);
        let mut more = String::new();
        loop {
            let path = format!("{}?limit={PAGE}&continue={more}", T::PATH);
            let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            let asked = tokio::time::timeout(ANSWER, self.client.request::<List<T>>(request)).await;
            let list = match asked.unwrap_or_else(|_| Err(too_late())) {
                Ok(list) => list,
                Err(error) => {
                    // What was known is still known.
                    self.known.extend(before);
                    return Err(error);
                }
            };
            for object in list.items {
                before.remove(&object.key());
                self.changed(object);
            }
            if list.metadata.more.is_empty() {
                for (_, gone) in before {
                    self.tell(News::Seen(gone));
                }
                return Ok(list.metadata.resource_version);
            }
            more = list.metadata.more;
        }
    }

    fn changed(&mut self, object: T) {
        let (key, gone) = (object.key(), object.gone());
        match object.seen() {
            Some(seen) => {
                // A namesake of something that went unseen is something else.
                if let Some(before) = self.known.insert(key, gone.clone())
                    && !same(&before, &gone)
                {
                    self.tell(News::Seen(before));
                }
                self.tell(News::Seen(seen));
            }
            None => self.deleted(&key),
        }
    }

    fn deleted(&mut self, key: &Key) {
        if let Some(gone) = self.known.remove(key) {
            self.tell(News::Seen(gone));
        }
    }

    async fn watch(&mut self, version: &mut String) -> Result<Ended, kube::Error> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            T::PATH,
            WATCH.as_secs(),
        );
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let asked = tokio::time::timeout(ANSWER, self.client.request_events::<T>(request)).await;
        let events = asked.unwrap_or_else(|_| Err(too_late()))?;
        futures_util::pin_mut!(events);
        loop {
            let next = tokio::time::timeout(WATCH + Duration::from_secs(10), events.try_next()).await;
            let Ok(next) = next else { return Ok(Ended::Resumable) };
            match next? {
                None => return Ok(Ended::Resumable),
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    version.clear();
                    version.push_str(object.version());
                    self.changed(object);
                }
                Some(WatchEvent::Deleted(object)) => {
                    version.clear();
                    version.push_str(object.version());
                    self.deleted(&object.key());
                }
                Some(WatchEvent::Bookmark(bookmark)) => *version = bookmark.metadata.resource_version,
                Some(WatchEvent::Error(status)) if status.code == 410 => return Ok(Ended::Stale),
                Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
            }
            if self.unheard {
                return Ok(Ended::Resumable);
            }
        }
    }
}

/// How a watch ended.
enum Ended {
    /// It goes on from where it was.
    Resumable,
    /// Everything must be listed again.
    Stale,
}

fn too_late() -> kube::Error {
    kube::Error::Service("the API server did not answer in time".into())
}

/// Whether two things that are gone are the same one.
fn same(one: &Seen, other: &Seen) -> bool {
    match (one, other) {
        (Seen::PodGone(one), Seen::PodGone(other)) => one == other,
        (Seen::WorkloadGone(one), Seen::WorkloadGone(other)) => one == other,
        _ => true,
    }
}

/// What all objects have that are read in part.
macro_rules! followed {
    ($object:ty, $path:literal, |$one:ident| $seen:expr, |$other:ident| $gone:expr) => {
        impl Followed for $object {
            const PATH: &'static str = $path;
            fn key(&self) -> Key {
                Key::new(&self.metadata.namespace, &self.metadata.name)
            }
            fn version(&self) -> &str {
                &self.metadata.resource_version
            }
            fn seen(self) -> Option<Seen> {
                let $one = self;
                $seen
            }
            fn gone(&self) -> Seen {
                let $other = self;
                $gone
            }
        }
    };
}

followed!(NodeObject, "/api/v1/nodes", |node| Some(Seen::Node(Box::new(NodeSeen::of(node)))), |node| {
    Seen::NodeGone(node.metadata.name.as_str().into())
});
followed!(PodObject, "/api/v1/pods", |pod| Some(Seen::Pod(Box::new(PodSeen::of(pod)))), |pod| {
    Seen::PodGone(pod.metadata.uid.as_str().into())
});
followed!(
    SliceObject,
    "/apis/resource.k8s.io/v1/resourceslices",
    |slice| SliceSeen::of(slice).map(Seen::Slice),
    |slice| Seen::SliceGone(slice.metadata.name.as_str().into())
);
followed!(
    ClaimObject,
    "/apis/resource.k8s.io/v1/resourceclaims",
    |claim| ClaimSeen::of(claim).map(|claim| Seen::Claim(Box::new(claim))),
    |claim| Seen::ClaimGone(claim.key())
);
followed!(
    PodGroupObject,
    "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    |group| Some(Seen::NativeGroup(Box::new(NativeGroupSeen::of(group)))),
    |group| Seen::NativeGroupGone(group.key())
);

followed!(NamespaceObject, "/api/v1/namespaces", |_namespace| Some(Seen::Namespace), |namespace| {
    Seen::NamespaceGone(namespace.metadata.name.as_str().into())
});
followed!(
    VolumeClaimObject,
    "/api/v1/persistentvolumeclaims",
    |claim| Some(Seen::VolumeClaim(Box::new(VolumeClaimSeen::of(claim)))),
    |claim| Seen::VolumeClaimGone(claim.key())
);
followed!(
    VolumeObject,
    "/api/v1/persistentvolumes",
    |volume| Some(Seen::Volume(Box::new(VolumeSeen::of(volume)))),
    |volume| Seen::VolumeGone(volume.metadata.name.as_str().into())
);
followed!(
    StorageClassObject,
    "/apis/storage.k8s.io/v1/storageclasses",
    |class| Some(Seen::StorageClass(StorageClassSeen::of(class))),
    |class| Seen::StorageClassGone(class.metadata.name.as_str().into())
);

/// The same for resources of ours, which are read as a whole.
macro_rules! followed_ours {
    ($object:ty, $path:literal, $seen:path, |$one:ident| $gone:expr) => {
        impl Followed for $object {
            const PATH: &'static str = $path;
            fn key(&self) -> Key {
                Key::new(self.metadata.namespace.as_deref().unwrap_or_default(), &self.name_any())
            }
            fn version(&self) -> &str {
                self.meta().resource_version.as_deref().unwrap_or_default()
            }
            fn seen(self) -> Option<Seen> {
                Some($seen(Arc::new(self)))
            }
            fn gone(&self) -> Seen {
                let $one = self;
                $gone
            }
        }
    };
}

followed_ours!(api::Department, "/apis/berth.dev/v1alpha1/departments", Seen::Department, |department| {
    Seen::DepartmentGone(department.name_any().into())
});
followed_ours!(api::Project, "/apis/berth.dev/v1alpha1/projects", Seen::Project, |project| {
    Seen::ProjectGone(project.name_any().into())
});
followed_ours!(api::NodePool, "/apis/berth.dev/v1alpha1/nodepools", Seen::Pool, |pool| {
    Seen::PoolGone(pool.name_any().into())
});
followed_ours!(api::Workload, "/apis/berth.dev/v1alpha1/workloads", Seen::Workload, |workload| {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    Seen::WorkloadGone(Key::new(namespace, workload.metadata.uid.as_deref().unwrap_or_default()))
});
