//! Admission: a response enters the cache when its path is asked for a second time, so a crawl over many files
//! displaces nothing.

use alloc::boxed::Box;
use alloc::vec;

use crate::limits::{
    ASKED_ONCE_MAX, CACHED_COPY_BYTES_MAX, CACHED_FILE_BYTES_MAX, CACHED_PATH_BYTES_MAX,
};

/// A response for a file that was just looked up.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Length of the path that was asked for.
    pub path_len_bytes: usize,
    /// Length of the file.
    pub len_bytes: u64,
    /// When the file was last changed, seconds since 1970: the later of mtime and ctime.
    pub changed_unix_s: i64,
    /// Other clients may get another response for the same path.
    pub varies: bool,
}

/// How the body of a response is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a copy, sent with its head in one call.
    Copied,
    /// As an open file.
    Open,
}

/// Remembers which paths were asked for once.
#[derive(Debug)]
pub struct Admission {
    /// Hashes of paths, by their low bits; a later one displaces an earlier one.
    asked: Box<[u64]>,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            asked: vec![0; ASKED_ONCE_MAX].into(),
        }
    }
}

impl Admission {
    /// The form in which to cache the response, if at all. It must be small, the same for all clients and no longer
    /// changing, and its path must have been asked for before. `is_cached`: the cache holds an older response for the
    /// path.
    pub fn admit(
        &mut self,
        path_hash: u64,
        is_cached: bool,
        candidate: &Candidate,
        now_unix_s: u64,
    ) -> Option<Form> {
        let long = candidate.len_bytes > CACHED_FILE_BYTES_MAX
            || candidate.path_len_bytes > CACHED_PATH_BYTES_MAX;
        if candidate.varies || long {
            return None;
        }
        // The validators of a file are weak while it may still change within the second.
        let settled = candidate.changed_unix_s.saturating_add(2) < now_unix_s as i64;
        let asked_again = is_cached || self.asked_before(path_hash);
        if !asked_again || !settled {
            return None;
        }
        match candidate.len_bytes {
            0..=CACHED_COPY_BYTES_MAX => Some(Form::Copied),
            _ => Some(Form::Open),
        }
    }

    /// Whether the path was among the last to be asked for. It is from now on.
    fn asked_before(&mut self, path_hash: u64) -> bool {
        let hash = path_hash | 1; // 0 marks a free slot
        let place = (hash as usize >> 1) & (ASKED_ONCE_MAX - 1);
        core::mem::replace(&mut self.asked[place], hash) == hash
    }
}

const _: () = assert!(
    ASKED_ONCE_MAX.is_power_of_two(),
    "a mask of low bits is a place"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Candidate = Candidate {
        path_len_bytes: 10,
        len_bytes: 10,
        changed_unix_s: 100,
        varies: false,
    };

    fn twice(candidate: Candidate) -> [Option<Form>; 2] {
        let mut admission = Admission::default();
        [(); 2].map(|()| admission.admit(7, false, &candidate, 103))
    }

    #[test]
    fn a_response_enters_when_it_is_asked_for_again() {
        assert_eq!(twice(SMALL), [None, Some(Form::Copied)]);
        let mut admission = Admission::default();
        let renewed = admission.admit(7, true, &SMALL, 103);
        assert_eq!(renewed, Some(Form::Copied), "it was cached before");
    }

    #[test]
    fn the_form_depends_on_the_length_and_long_files_stay_out() {
        let form = |len_bytes| twice(Candidate { len_bytes, ..SMALL })[1];
        assert_eq!(form(CACHED_COPY_BYTES_MAX), Some(Form::Copied));
        assert_eq!(form(CACHED_COPY_BYTES_MAX + 1), Some(Form::Open));
        assert_eq!(form(CACHED_FILE_BYTES_MAX), Some(Form::Open));
        assert_eq!(form(CACHED_FILE_BYTES_MAX + 1), None);
    }

    #[test]
    fn what_differs_between_clients_or_may_still_change_stays_out() {
        let varies = Candidate {
            varies: true,
            ..SMALL
        };
        let fresh = Candidate {
            changed_unix_s: 101,
            ..SMALL
        };
        let long_path = Candidate {
            path_len_bytes: CACHED_PATH_BYTES_MAX + 1,
            ..SMALL
        };
        for candidate in [varies, fresh, long_path] {
            assert_eq!(twice(candidate), [None, None], "{candidate:?}");
        }
    }

    proptest! {
        #[test]
        fn a_crawl_that_asks_once_for_each_path_admits_nothing(first in any::<u32>()) {
            let mut admission = Admission::default();
            for nth in 0..20_000u64 {
                // Odd factors keep the numbers apart; the lowest bit does not count.
                let path_hash = (u64::from(first) + nth).wrapping_mul(0x9E37_79B9_7F4A_7C15) << 1;
                prop_assert_eq!(admission.admit(path_hash, false, &SMALL, 103), None);
            }
        }

        #[test]
        fn a_path_that_is_asked_for_twice_in_a_row_is_admitted(hashes in prop::collection::vec(any::<u64>(), 1..200)) {
            let mut admission = Admission::default();
            for hash in hashes {
                admission.admit(hash, false, &SMALL, 103);
                prop_assert_eq!(admission.admit(hash, false, &SMALL, 103), Some(Form::Copied));
            }
        }
    }
}
