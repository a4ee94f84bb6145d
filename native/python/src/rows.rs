//! A quick check that rows of an index are right: exact types, in range, in order.
//!
//! `cowfs/index/rows.py` and `validation.py` have the rules and say what is wrong with a row.
//! Applying them to each row of a large change set takes longer than writing it, so whole windows
//! are checked here first. The rows counted here need no further check; all others do.

use cowfs_base::LAST_INO;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple};

const NAME_MAX_BYTES: usize = 255;
const TARGET_MAX_BYTES: usize = 4095;
const HASH_BYTES: usize = 32;
const LAST_PACK: i64 = (1 << 31) - 1;
const RAW_MAX_BYTES: i64 = 16 << 20;
const U32_MAX: i64 = u32::MAX as i64;
const MODE_MAX: i64 = 0o177_777;
const S_IFMT: i64 = libc::S_IFMT as i64;
const S_IFREG: i64 = libc::S_IFREG as i64;
const S_IFLNK: i64 = libc::S_IFLNK as i64;
const TYPES: [u32; 7] = [
    libc::S_IFREG,
    libc::S_IFDIR,
    libc::S_IFLNK,
    libc::S_IFIFO,
    libc::S_IFSOCK,
    libc::S_IFCHR,
    libc::S_IFBLK,
];

/// How many of the first rows are plainly right. `last`: the number before them.
#[pyfunction]
pub(crate) fn plain_inodes(rows: &Bound<'_, PyList>, last: i64, next_ino: i64) -> usize {
    let mut last = last;
    count(rows, |row| {
        let ino = inode(row)?;
        let is_next = last < ino && ino < next_ino;
        last = ino;
        is_next.then_some(())
    })
}

/// The same for entries. `last`: parent and name before them.
#[pyfunction]
pub(crate) fn plain_entries(rows: &Bound<'_, PyList>, last: (i64, Vec<u8>)) -> usize {
    let (mut last_parent, mut last_name) = last;
    count(rows, |row| {
        let row = tuple(row, 3)?;
        let (parent, ino) = (number(&row, 0)?, number(&row, 2)?);
        let name = row.get_item(1).ok()?;
        let name = bytes(&name)?;
        let is_name = !name.is_empty()
            && name.len() <= NAME_MAX_BYTES
            && !name.contains(&b'/')
            && !name.contains(&0)
            && name != b"."
            && name != b"..";
        let is_next = (last_parent, &*last_name) < (parent, name);
        last_parent = parent;
        last_name.clear();
        last_name.extend_from_slice(name);
        (is_name && is_next && (0..=LAST_INO as i64).contains(&ino)).then_some(())
    })
}

/// The same for contents: inode, list of extents. `last`: the inode before them.
#[pyfunction]
pub(crate) fn plain_contents(rows: &Bound<'_, PyList>, last: i64) -> usize {
    let mut last = last;
    count(rows, |row| {
        let row = tuple(row, 2)?;
        let ino = number(&row, 0)?;
        let extents = row.get_item(1).ok()?;
        let extents = extents.cast_exact::<PyList>().ok()?;
        let mut end = 0;
        for extent in extents.iter() {
            end = extent_end(&extent, end)?;
        }
        let is_next = last < ino;
        last = ino;
        is_next.then_some(())
    })
}

fn count(
    rows: &Bound<'_, PyList>,
    mut is_plain: impl FnMut(&Bound<'_, PyAny>) -> Option<()>,
) -> usize {
    rows.iter()
        .take_while(|row| is_plain(row).is_some())
        .count()
}

fn tuple<'py>(row: &Bound<'py, PyAny>, length: usize) -> Option<Bound<'py, PyTuple>> {
    let row = row.cast_exact::<PyTuple>().ok()?;
    (row.len() == length).then(|| row.clone())
}

fn number(row: &Bound<'_, PyTuple>, at: usize) -> Option<i64> {
    let item = row.get_item(at).ok()?;
    item.cast_exact::<PyInt>().ok()?.extract().ok()
}

fn bytes<'a>(item: &'a Bound<'_, PyAny>) -> Option<&'a [u8]> {
    Some(item.cast_exact::<PyBytes>().ok()?.as_bytes())
}

fn inode(row: &Bound<'_, PyAny>) -> Option<i64> {
    let row = tuple(row, 13)?;
    let mut numbers = [0; 12];
    for (at, value) in numbers.iter_mut().enumerate() {
        *value = number(&row, at)?;
    }
    let [ino, mode, nlink, uid, gid, rdev, size, mapped, .., flags] = numbers;
    let target = row.get_item(12).ok()?;
    let target = bytes(&target)?;
    let is_known = (0..=MODE_MAX).contains(&mode)
        && TYPES.iter().any(|kind| i64::from(*kind) == mode & S_IFMT);
    let are_short = [uid, gid, rdev, flags]
        .iter()
        .all(|value| (0..=U32_MAX).contains(value));
    let mapped_max = if mode & S_IFMT == S_IFREG { size } else { 0 };
    let target_min = usize::from(mode & S_IFMT == S_IFLNK);
    let is_right = (1..=LAST_INO as i64).contains(&ino)
        && is_known
        && (1..=U32_MAX).contains(&nlink)
        && are_short
        && size >= 0
        && (target_min..=TARGET_MAX_BYTES).contains(&target.len())
        && !target.contains(&0)
        && (0..=mapped_max).contains(&mapped);
    is_right.then_some(ino)
}

/// The end of the extent. `from`: the end of the one before.
fn extent_end(row: &Bound<'_, PyAny>, from: i64) -> Option<i64> {
    let row = tuple(row, 9)?;
    let hash = row.get_item(2).ok()?;
    let at = |place| number(&row, place);
    let (offset, length) = (at(0)?, at(1)?);
    let (pack, pack_offset, stored) = (at(3)?, at(4)?, at(5)?);
    let (raw, skip, codec) = (at(6)?, at(7)?, at(8)?);
    let end = offset.checked_add(length)?;
    let is_right = offset >= from
        && length >= 1
        && bytes(&hash)?.len() == HASH_BYTES
        && (1..=LAST_PACK).contains(&pack)
        && pack_offset >= 0
        && (codec == 0 || codec == 1)
        && skip >= 0
        && skip.checked_add(length)? <= raw
        && (1..=U32_MAX).contains(&stored)
        && raw <= RAW_MAX_BYTES;
    is_right.then_some(end)
}
