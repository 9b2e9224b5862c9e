//! Makers of Pods are read one by one: there are few of them, most clusters have few of their kinds, and following every kind
//! that could be there would cost a watch each.

use super::{WriteError, Writer, start::read};
use crate::{
    seen::{
        Refusal,
        maker::{MakerKey, MakerObject, MakerSeen, Unread, unread},
    },
    world::Seen,
};
use futures_util::StreamExt;
use std::collections::BTreeSet;

/// Makers that are read together when the lead is taken over.
const AT_ONCE: usize = 32;

impl Writer {
    /// Reads whoever made Pods.
    pub(super) async fn read_maker(&self, maker: &MakerKey) -> Result<MakerSeen, Refusal> {
        let found = self.0.requests.get(&maker.path()).await;
        let found = found.and_then(|found| read::<MakerObject>(&found));
        found.map(|found| MakerSeen::of(maker.kind, found)).map_err(|error| {
            let why = match error {
                error if error.is_gone() => Unread::Missing,
                WriteError::Refused { code: 404, .. } => Unread::NotServed,
                WriteError::Refused { code: 403, .. } => Unread::Forbidden,
                error => Unread::Failed(error.to_string()),
            };
            unread(maker, why)
        })
    }

    /// Reads everybody who made Pods that are there.
    pub(crate) async fn read_makers(&self, makers: BTreeSet<MakerKey>) -> Vec<Seen> {
        let read = |maker: MakerKey| async move {
            let found = self.read_maker(&maker).await;
            Seen::Maker { maker, found }
        };
        futures_util::stream::iter(makers).map(read).buffer_unordered(AT_ONCE).collect().await
    }
}
