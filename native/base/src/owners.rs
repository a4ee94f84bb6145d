//! Two owners that a mount takes for one: the version's, whom files are kept under, and the one
//! whom it shows in their place.
//!
//! ```text
//! kept → shown    the version's owner becomes the shown one; any other stays
//! shown → kept    the shown owner becomes the version's; any other stays
//! ```
//!
//! Files that are kept as the shown owner's stay theirs. So the way out is not the way in turned
//! round: the version's own id, on its way in, is kept as it is and shown as the other one. Users
//! and groups are mapped apart. The default changes nothing.

/// Who is shown in whose place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owners {
    users: Pair,
    groups: Pair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pair {
    kept: u32,
    shown: u32,
}

impl Pair {
    fn show(self, id: u32) -> u32 {
        match id == self.kept {
            true => self.shown,
            false => id,
        }
    }

    fn keep(self, id: u32) -> u32 {
        match id == self.shown {
            true => self.kept,
            false => id,
        }
    }
}

impl Owners {
    /// Each is a user and a group.
    pub fn new(kept: (u32, u32), shown: (u32, u32)) -> Owners {
        Owners {
            users: Pair {
                kept: kept.0,
                shown: shown.0,
            },
            groups: Pair {
                kept: kept.1,
                shown: shown.1,
            },
        }
    }

    /// The user that files of `user` are shown to have.
    pub fn shown_user(&self, user: u32) -> u32 {
        self.users.show(user)
    }

    /// The group that files of `group` are shown to have.
    pub fn shown_group(&self, group: u32) -> u32 {
        self.groups.show(group)
    }

    /// The user that a file is kept under which is to be `user`'s.
    pub fn kept_user(&self, user: u32) -> u32 {
        self.users.keep(user)
    }

    /// The group that a file is kept under which is to be `group`'s.
    pub fn kept_group(&self, group: u32) -> u32 {
        self.groups.keep(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_owners_are_one_and_others_stay() {
        let owners = Owners::new((0, 100), (1000, 1001));
        for (kept, shown) in [(0, 1000), (1000, 1000), (7, 7)] {
            assert_eq!(owners.shown_user(kept), shown);
        }
        for (kept, shown) in [(100, 1001), (1001, 1001), (0, 0)] {
            assert_eq!(owners.shown_group(kept), shown);
        }
        for (given, kept) in [(1000, 0), (0, 0), (7, 7)] {
            assert_eq!(owners.kept_user(given), kept);
        }
        for (given, kept) in [(1001, 100), (100, 100), (0, 0)] {
            assert_eq!(owners.kept_group(given), kept);
        }
    }

    #[test]
    fn whoever_is_shown_what_was_given_to_them_is_shown_it_again() {
        let owners = Owners::new((0, 0), (1000, 1000));
        for id in [0, 1, 1000, u32::MAX] {
            let shown = owners.shown_user(owners.kept_user(id));
            assert_eq!(shown, owners.shown_user(id));
            assert_eq!(owners.shown_user(owners.kept_user(shown)), shown);
            assert_eq!(Owners::default().shown_user(id), id);
            assert_eq!(Owners::default().kept_group(id), id);
        }
    }
}
