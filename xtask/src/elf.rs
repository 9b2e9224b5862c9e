//! Which versions of a library a program asks for, read from its ELF file.
//!
//! A program starts on a system when every version it asks for is there. `make dist` promises glibc 2.31, and this is what
//! holds it to that.

use anyhow::{Context, Result, bail, ensure};
use std::{fmt, fs, path::Path};

/// A section that lists needed versions, and what its entries look like.
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;
const SECTION_BYTES: usize = 64;
const NEED_BYTES: usize = 16;
/// More libraries or versions than any program has: a longer list is a damaged one.
const ENTRIES_MAX: usize = 10_000;

/// A version of a library that a program asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Needed {
    /// The library, such as `libc.so.6`.
    pub(crate) library: String,
    /// The version, such as `GLIBC_2.31`.
    pub(crate) version: String,
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.version, self.library)
    }
}

/// Fails when a program asks for a later glibc than `glibc_max`, such as `2.31`. Returns the latest version it asks for.
pub(crate) fn check_file(path: &Path, glibc_max: &str) -> Result<String> {
    let program = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let needed = needed_versions(&program).with_context(|| path.display().to_string())?;
    check(&needed, glibc_max).with_context(|| path.display().to_string())
}

fn check(needed: &[Needed], glibc_max: &str) -> Result<String> {
    let numbers_max = numbers(glibc_max).with_context(|| format!("`{glibc_max}` is no version"))?;
    let mut latest = Vec::new();
    let mut later = Vec::new();
    for needed in needed {
        let Some(version) = needed.version.strip_prefix("GLIBC_") else { continue };
        // A private symbol is one of the very library that the program was linked with.
        match numbers(version) {
            Some(numbers) if numbers <= numbers_max => latest = latest.max(numbers),
            _ => later.push(needed.to_string()),
        }
    }
    ensure!(later.is_empty(), "needs a later glibc than {glibc_max}: {}", later.join(", "));
    ensure!(!latest.is_empty(), "asks for no version of glibc: it is not linked as expected");
    Ok(latest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

/// Every version that a program for a 64-bit little-endian machine asks for, in order.
pub(crate) fn needed_versions(program: &[u8]) -> Result<Vec<Needed>> {
    let file = Reader(program);
    ensure!(program.starts_with(b"\x7fELF"), "not an ELF file");
    ensure!(program.get(4..6) == Some(&[2, 1]), "not an ELF file of a 64-bit little-endian machine");
    let (sections, bytes, count) = (file.size(0x28)?, file.u16(0x3a)?, file.u16(0x3c)?);
    if sections == 0 || count == 0 {
        bail!("an ELF file without sections: strip leaves them, another tool removed them");
    }
    ensure!(usize::from(bytes) == SECTION_BYTES, "sections of {bytes} bytes");
    let mut needed = Vec::new();
    for index in 0..usize::from(count) {
        let section = at(sections, index * SECTION_BYTES)?;
        if file.u32(at(section, 4)?)? != SHT_GNU_VERNEED {
            continue;
        }
        let (start, entries) = (file.size(at(section, 0x18)?)?, file.u32(at(section, 0x2c)?)?);
        let strings = at(sections, file.u32(at(section, 0x28)?)? as usize * SECTION_BYTES)?;
        read_needs(&file, start, entries, file.size(at(strings, 0x18)?)?, &mut needed)?;
    }
    needed.sort();
    needed.dedup();
    Ok(needed)
}

/// Reads a list of libraries, each with its list of versions. Entries name the distance to the next one.
fn read_needs(
    file: &Reader<'_>,
    start: usize,
    libraries: u32,
    strings: usize,
    needed: &mut Vec<Needed>,
) -> Result<()> {
    let mut library_at = start;
    for _ in 0..libraries {
        let library = file.text(at(strings, file.u32(at(library_at, 4)?)? as usize)?)?;
        let versions = file.u16(at(library_at, 2)?)?;
        let mut version_at = at(library_at, file.u32(at(library_at, 8)?)? as usize)?;
        for _ in 0..versions {
            let version = file.text(at(strings, file.u32(at(version_at, 8)?)? as usize)?)?;
            needed.push(Needed { library: library.clone(), version });
            ensure!(needed.len() <= ENTRIES_MAX, "more than {ENTRIES_MAX} versions");
            version_at = at(version_at, file.u32(at(version_at, 12)?)? as usize)?;
        }
        let next = file.u32(at(library_at, 12)?)? as usize;
        ensure!(next == 0 || next >= NEED_BYTES, "an entry that overlaps the next");
        library_at = at(library_at, next)?;
    }
    Ok(())
}

fn at(base: usize, offset: usize) -> Result<usize> {
    base.checked_add(offset).context("an offset past the end of any file")
}

/// The bytes of a file, read with bounds.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let end = at(offset, N)?;
        let bytes = self.0.get(offset..end).with_context(|| format!("the file ends before byte {end}"))?;
        Ok(bytes.try_into().expect("the slice has N bytes"))
    }

    fn u16(&self, offset: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.bytes(offset)?))
    }

    fn u32(&self, offset: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(offset)?))
    }

    fn size(&self, offset: usize) -> Result<usize> {
        Ok(usize::try_from(u64::from_le_bytes(self.bytes(offset)?))?)
    }

    fn text(&self, offset: usize) -> Result<String> {
        let rest = self.0.get(offset..).context("a name past the end of the file")?;
        let length = rest.iter().position(|byte| *byte == 0).context("a name without an end")?;
        Ok(std::str::from_utf8(&rest[..length]).context("a name that is not text")?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_program() -> Vec<u8> {
        fs::read(std::env::current_exe().expect("this test is a program")).expect("it is readable")
    }

    fn needed(versions: &[&str]) -> Vec<Needed> {
        let needed = |version: &&str| Needed { library: "libc.so.6".into(), version: (*version).into() };
        versions.iter().map(needed).collect()
    }

    #[test]
    fn the_versions_of_a_program_are_those_that_its_libraries_are_asked_for() {
        let found = needed_versions(&own_program()).expect("this test is an ELF file");
        let libraries: Vec<&str> = found.iter().map(|needed| needed.library.as_str()).collect();
        assert!(libraries.contains(&"libc.so.6"), "{found:?}");
        assert!(found.iter().any(|needed| needed.version.starts_with("GLIBC_2.")), "{found:?}");
        // Symbols of the first version of its architecture are in every program.
        let first = if cfg!(target_arch = "x86_64") { "GLIBC_2.2.5" } else { "GLIBC_2.17" };
        assert!(found.iter().any(|needed| needed.version == first), "{found:?}");
    }

    #[test]
    fn a_program_that_needs_a_later_glibc_is_refused_with_the_version() {
        let versions = needed(&["GLIBC_2.2.5", "GLIBC_2.31", "GLIBC_2.34"]);
        let error = check(&versions, "2.31").expect_err("2.34 is later");
        assert_eq!(error.to_string(), "needs a later glibc than 2.31: GLIBC_2.34 of libc.so.6");
        assert_eq!(check(&versions, "2.34").expect("2.34 is enough"), "2.34");
    }

    #[test]
    fn versions_are_compared_as_numbers_and_other_names_do_not_count() {
        let versions = needed(&["GLIBC_2.2.5", "GLIBC_2.9", "GCC_4.2.0"]);
        assert_eq!(check(&versions, "2.31").expect("2.9 is older than 2.31"), "2.9");
        let private = needed(&["GLIBC_2.2.5", "GLIBC_PRIVATE"]);
        assert!(check(&private, "2.31").is_err(), "a private symbol fits one build of glibc only");
    }

    #[test]
    fn a_program_without_glibc_is_not_what_was_promised() {
        let error = check(&[], "2.31").expect_err("there is nothing");
        assert!(error.to_string().contains("no version of glibc"), "{error}");
    }

    #[test]
    fn a_file_that_is_cut_short_or_is_no_program_is_an_error_and_no_panic() {
        let program = own_program();
        let whole = needed_versions(&program).expect("it is whole");
        for length in (0..program.len()).step_by(program.len() / 500 + 1).chain(0..200) {
            match needed_versions(&program[..length]) {
                Ok(found) => assert_eq!(found, whole, "cut to {length} bytes"),
                Err(_) => continue,
            }
        }
        assert!(needed_versions(b"#!/bin/sh\n").is_err());
        let mut other = program;
        other[4] = 1;
        let error = needed_versions(&other).expect_err("a 32-bit program");
        assert!(error.to_string().contains("64-bit"), "{error}");
    }
}
