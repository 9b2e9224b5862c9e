//! The places of one victim, kept without memory of their own where there is one.

use berth_types::Place;

/// The places a victim gives; nearly always one.
pub(crate) enum Places<'a> {
    One(&'a Place),
    Many(Vec<&'a Place>),
}

impl<'a> Places<'a> {
    pub(crate) fn of(mut places: impl Iterator<Item = &'a Place>) -> Self {
        let (first, second) = (places.next(), places.next());
        match (first, second) {
            (Some(only), None) => Self::One(only),
            (first, second) => Self::Many(first.into_iter().chain(second).chain(places).collect()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[&'a Place] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Many(places) => places,
        }
    }
}
