//! What a store is told when it is opened.

use berth_types::Span;

/// How much a store keeps, and how it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The most bytes of history: events that no start needs any more, samples and their roll-ups. Half is for events, a
    /// quarter for samples, an eighth each for roll-ups to five minutes and to hours.
    pub history_bytes_max: u64,
    /// How long samples are kept as they came.
    pub raw_keep: Span,
    /// How long roll-ups to five minutes are kept; those to hours are bounded by size alone.
    pub five_minutes_keep: Span,
    /// Bytes of a snapshot written with one sync: appends wait for one such part at most.
    pub snapshot_part_bytes: usize,
    /// The most bytes of the database file; as much as the disk has when unset. What would pass it is refused as on a full disk.
    pub file_bytes_max: Option<u64>,
    /// Connections that read at one time.
    pub readers: usize,
    /// The SQLite file layer, by its registered name; the system's when unset. Tests inject faults through it.
    pub vfs: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            history_bytes_max: 1 << 30,
            raw_keep: Span::secs(6 * 3600),
            five_minutes_keep: Span::secs(30 * 24 * 3600),
            snapshot_part_bytes: 512 << 10,
            file_bytes_max: None,
            readers: 4,
            vfs: None,
        }
    }
}
