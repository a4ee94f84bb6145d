//! Listings of directories that change under their reader, against a model of the places that
//! entries have.
//!
//! An entry keeps its place when it is renamed. A rename onto a name that is there gives the place
//! of that name another inode, and the place it came from goes: the inode then comes a second time
//! if it was listed already, under a name that was there all the time. New entries come behind the
//! end of the listing. So a listing is known entry by entry, and where it ends.

use cowfs_fuse_abi::opcode;

use super::Kernel;

/// A few entries a reply, so that much changes between them.
const SMALL_BYTES: u32 = 300;
const LARGE_BYTES: u32 = 64 << 10;
/// Renames with names as long as may be: they come to more than a directory lets dead names take.
const WEARING_RENAMES: u64 = 80;

/// Name and inode of each entry, in the order of their places.
#[derive(Default)]
struct Places {
    all: Vec<Option<(Vec<u8>, u64)>>,
    /// The reader's next entry.
    at: usize,
    /// Those from here on were made since the listing was begun.
    end: usize,
}

impl Places {
    fn position(&self, name: &[u8]) -> Option<usize> {
        let is_it =
            |place: &Option<(Vec<u8>, u64)>| place.as_ref().is_some_and(|(known, _)| known == name);
        self.all.iter().position(is_it)
    }

    fn next(&mut self) -> Option<(Vec<u8>, u64)> {
        while self.at < self.end {
            self.at += 1;
            if let Some(entry) = &self.all[self.at - 1] {
                return Some(entry.clone());
            }
        }
        None
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let from = self.position(from).expect("what was renamed was there");
        let (_, ino) = self.all[from].clone().expect("an entry");
        let moved = Some((to.to_vec(), ino));
        match self.position(to) {
            // Two names of one inode: nothing happens.
            Some(to)
                if self.all[to]
                    .as_ref()
                    .is_some_and(|(_, known)| *known == ino) => {}
            Some(to) => {
                self.all[from] = None;
                self.all[to] = moved;
            }
            None => self.all[from] = moved,
        }
    }
}

impl Kernel {
    /// Renames each entry of a directory as it is listed, and makes new ones.
    pub(super) fn list_while_it_changes(&mut self) {
        let mut node = self.random.pick(&self.known.nodes);
        if self.random.once_in(2) {
            let Some(fresh) = self.make_directory(node) else {
                return;
            };
            node = fresh;
        }
        let Some(fh) = self.ask(opcode::OPENDIR, node, &[0; 8]) else {
            return;
        };
        let fh = u64::from_le_bytes(fh[..8].try_into().expect("eight bytes"));
        let Some(mut places) = self.places(node, fh) else {
            return;
        };
        if self.random.once_in(2) {
            self.wear_names_out(node, &mut places);
        }
        places.end = places.all.len();
        let mut cookie = 0;
        loop {
            let Some(entries) = self.read_entries(node, fh, cookie, SMALL_BYTES) else {
                return; // now and then a load fails, or another handle was the oldest
            };
            let Some((.., last)) = entries.last() else {
                break;
            };
            cookie = *last;
            let names: Vec<_> = entries.into_iter().filter(is_own).collect();
            for (name, ino, _) in &names {
                assert_eq!(
                    Some((name.clone(), *ino)),
                    places.next(),
                    "a listing of {node}"
                );
            }
            for (name, ..) in &names {
                self.change_entry(node, name, &mut places);
            }
        }
        assert_eq!(None, places.next(), "a listing of {node} ended before");
    }

    /// A directory that no entry has left yet.
    fn make_directory(&mut self, parent: u64) -> Option<u64> {
        let name = format!("directory {}\0", self.random.below(1000));
        let body = [&0o777_u32.to_le_bytes()[..], &[0; 4], name.as_bytes()].concat();
        let made = self.ask(opcode::MKDIR, parent, &body)?;
        let node = u64::from_le_bytes(made[..8].try_into().expect("eight bytes"));
        for _ in 0..1 + self.random.below(10) {
            self.make_entry(node, &mut Places::default());
        }
        Some(node)
    }

    /// What a directory has while nothing changes.
    fn places(&mut self, node: u64, fh: u64) -> Option<Places> {
        let (mut places, mut cookie) = (Places::default(), 0);
        loop {
            let entries = self.read_entries(node, fh, cookie, LARGE_BYTES)?;
            let Some((.., last)) = entries.last() else {
                return Some(places);
            };
            assert!(*last > cookie, "a listing of {node} goes back");
            cookie = *last;
            let names = entries.into_iter().filter(is_own);
            places
                .all
                .extend(names.map(|(name, ino, _)| Some((name, ino))));
        }
    }

    /// Name, inode and cookie of some entries.
    fn read_entries(
        &mut self,
        node: u64,
        fh: u64,
        cookie: u64,
        bytes: u32,
    ) -> Option<Vec<(Vec<u8>, u64, u64)>> {
        let io = [
            &fh.to_le_bytes()[..],
            &cookie.to_le_bytes(),
            &bytes.to_le_bytes(),
            &[0; 20],
        ];
        let body = self.ask(opcode::READDIR, node, &io.concat())?;
        Some(dirents(&body))
    }

    fn change_entry(&mut self, parent: u64, name: &[u8], places: &mut Places) {
        let renamed = match name.split_last() {
            Some((b'~', front)) => front.to_vec(),
            _ => [name, b"~"].concat(),
        };
        self.rename_entry(parent, name, &renamed, places);
        if self.random.once_in(4) {
            self.make_entry(parent, places);
        }
    }

    fn rename_entry(&mut self, parent: u64, name: &[u8], renamed: &[u8], places: &mut Places) {
        let body = [
            &parent.to_le_bytes()[..],
            &[0; 8],
            name,
            b"\0",
            renamed,
            b"\0",
        ];
        if self.ask(opcode::RENAME2, parent, &body.concat()).is_some() {
            places.rename(name, renamed);
        }
    }

    fn make_entry(&mut self, parent: u64, places: &mut Places) {
        let new = format!("new {}~", self.random.below(1000));
        let mode = (libc::S_IFREG | 0o644).to_le_bytes();
        let body = [&mode[..], &[0; 12], new.as_bytes(), b"\0"].concat();
        if let Some(made) = self.ask(opcode::MKNOD, parent, &body) {
            let ino = u64::from_le_bytes(made[..8].try_into().expect("eight bytes"));
            places.all.push(Some((new.into_bytes(), ino)));
        }
    }

    /// Renames the first entry to and fro, until its directory has dropped dead names; then makes
    /// new ones.
    fn wear_names_out(&mut self, node: u64, places: &mut Places) {
        let Some((name, _)) = places.all.first().cloned().flatten() else {
            return;
        };
        let long = [b'w'; 250];
        for _ in 0..WEARING_RENAMES / 2 {
            self.rename_entry(node, &name, &long, places);
            self.rename_entry(node, &long, &name, places);
        }
        self.make_entry(node, places);
        self.make_entry(node, places);
    }
}

/// Neither a dot nor the entry that the mount shows beside the volume, which is always last.
fn is_own((name, ino, _): &(Vec<u8>, u64, u64)) -> bool {
    name != b"." && name != b".." && ino >> 37 == 0
}

/// Name, inode and cookie of each entry of a READDIR reply.
fn dirents(mut body: &[u8]) -> Vec<(Vec<u8>, u64, u64)> {
    let number = |at: &[u8]| u64::from_le_bytes(at[..8].try_into().expect("eight bytes"));
    let mut found = Vec::new();
    while body.len() >= 24 {
        let length = number(&body[16..]) as u32 as usize;
        found.push((
            body[24..24 + length].to_vec(),
            number(body),
            number(&body[8..]),
        ));
        body = &body[24 + length.next_multiple_of(8)..];
    }
    found
}
