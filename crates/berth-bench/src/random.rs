//! Random numbers that are the same on every machine and in every year.

/// A SplitMix64 sequence: small, fast, and good enough to mix shapes.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// One of the values, each as often as its weight says.
    pub(crate) fn pick<T: Copy>(&mut self, weighted: &[(u64, T)]) -> T {
        let total = weighted.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total);
        for &(weight, value) in weighted {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return value,
            }
        }
        unreachable!("the number drawn is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::seeded(0);
        assert_eq!(random.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn values_come_as_often_as_their_weight_says() {
        let mut random = Random::seeded(7);
        let rare = (0..10_000).filter(|_| random.pick(&[(1, true), (9, false)])).count();
        assert!((800..1200).contains(&rare), "{rare}");
    }
}
