//! Two owners that a mount treats as one: the version's owner, under whom files are stored, and the
//! owner shown in its place.
//!
//! ```text
//! kept → shown    the version's owner becomes the shown one; any other stays
//! shown → kept    the shown owner becomes the version's; any other stays
//! ```
//!
//! Files stored under the shown owner stay so. So the two mappings are not inverse: the version's
//! own id, on its way in, is stored unchanged and shown as the other one. Users and groups are
//! mapped separately. The default changes nothing.

/// The substitution of user and group ids: stored id and shown id.
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

    /// The user under whom to store a file of `user`.
    pub fn kept_user(&self, user: u32) -> u32 {
        self.users.keep(user)
    }

    /// The group under which to store a file of `group`.
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
