use std::fs;
use std::os::unix::fs::symlink;
use std::thread::sleep;
use std::time::Duration;

use super::*;

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_nanos() as i64
}

fn settled() {
    sleep(Duration::from_nanos(2 * TICK_NS as u64));
}

fn small(directory: &File, name: &[u8]) -> Option<Vec<u8>> {
    read_small(directory.as_fd(), name, 100).map(|(_, data)| data)
}

#[test]
fn a_directory_is_listed_by_name_as_often_as_one_likes() {
    let place = tempfile::tempdir().unwrap();
    for name in ["b", "a", "c"] {
        fs::write(place.path().join(name), name).unwrap();
    }
    symlink("nowhere", place.path().join("link")).unwrap();
    let directory = File::open(place.path()).unwrap();
    for _ in 0..2 {
        let found = list(&directory).unwrap();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [b"a".as_slice(), b"b", b"c", b"link"]);
        assert_eq!(found[3].1.mode & 0o170_000, 0o120_000);
        assert_eq!(found[0].1.size, 1);
    }
}

#[test]
fn small_files_are_read_whole_and_nothing_else_is() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("small"), b"content").unwrap();
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("full"), [1; 100]).unwrap();
    fs::write(path("large"), [1; 101]).unwrap();
    fs::create_dir(path("directory")).unwrap();
    symlink("small", path("link")).unwrap();
    settled();
    let directory = File::open(place.path()).unwrap();
    assert_eq!(small(&directory, b"small").unwrap(), b"content");
    assert_eq!(small(&directory, b"empty").unwrap(), b"");
    assert_eq!(small(&directory, b"full").unwrap(), [1; 100]);
    for other in ["large", "directory", "link", "missing"] {
        assert_eq!(small(&directory, other.as_bytes()), None, "{other}");
    }
}

#[test]
fn a_file_that_was_just_changed_is_not_trusted() {
    let place = tempfile::tempdir().unwrap();
    let directory = File::open(place.path()).unwrap();
    let in_future = SystemTime::now() + Duration::from_secs(60);
    assert!(!is_settled(
        in_future.duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
    ));
    let coarse_ns = |seconds_ago| (now_ns() / 1_000_000_000 - seconds_ago) * 1_000_000_000;
    assert!(is_settled(coarse_ns(4)));
    assert!(!is_settled(coarse_ns(-60)));
    fs::write(place.path().join("file"), b"x").unwrap();
    settled();
    assert!(small(&directory, b"file").is_some());
}

#[test]
fn nothing_is_opened_through_a_link_or_outside_of_the_root() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("root/directory/below")).unwrap();
    fs::write(path("root/directory/file"), b"content").unwrap();
    fs::write(path("outside"), b"").unwrap();
    symlink("directory", path("root/link")).unwrap();
    symlink("file", path("root/directory/link")).unwrap();
    symlink("link", path("root/directory/directory")).unwrap();
    let root = File::open(path("root")).unwrap();
    type Open = fn(BorrowedFd<'_>, &[u8], OFlags, Mode) -> io::Result<OwnedFd>;
    let ways: [Open; 2] = [open, open_by_name];
    for way in ways {
        let read = |path: &str| way(root.as_fd(), path.as_bytes(), OFlags::RDONLY, Mode::empty());
        for found in ["directory", "directory/file", "directory/below", "."] {
            read(found).unwrap();
        }
        let refused = [
            ("link", Errno::LOOP),
            ("link/file", Errno::LOOP),
            ("directory/link", Errno::LOOP),
            ("directory/link/x", Errno::LOOP),
            ("../outside", Errno::XDEV),
            ("directory/../../outside", Errno::XDEV),
            ("/etc", Errno::XDEV),
            ("directory/file/x", Errno::NOTDIR),
            ("missing", Errno::NOENT),
            ("missing/x", Errno::NOENT),
        ];
        for (name, expected) in refused {
            let error = read(name).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(expected.raw_os_error()),
                "{name}"
            );
        }
        let directory = OFlags::RDONLY | OFlags::DIRECTORY;
        let error = way(root.as_fd(), b"link", directory, Mode::empty()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        let made = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        way(
            root.as_fd(),
            b"directory/new",
            made,
            Mode::from_raw_mode(0o600),
        )
        .unwrap();
        fs::remove_file(path("root/directory/new")).unwrap();
    }
}
