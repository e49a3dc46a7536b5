//! NFS for what origins have, in place of a directory.
//!
//! HTTP knows no folders, so a folder is what an origin lists, or redirects to. What is asked of origins goes the ways of HTTP clients:
//! files are objects of the gateway's catalog, and listings pass through. A call never waits: it is carried out
//! ([`procedures`]) as far as is known, gives what it has to ask ([`inquiry`]), and is carried out anew when that was answered.

mod inquiry;
mod known;
mod listings;
mod place;
mod procedures;
mod visit;

use std::net::IpAddr;
use std::sync::Arc;

use ackpace_core::conn::StreamId;
use ackpace_wire::http::etag::ETag;
use ackpace_wire::nfs3::handle::Key;
use ackpace_wire::nfs3::{Attributes, Device, Kind, Request, Time};

use self::known::{KNOWN_BYTES, Known};
use self::listings::{Budget, LISTINGS_BYTES, Listings, Names};
use super::exports::{Export, Exports};
use super::identity::hash;
use super::outcome::Outcome;
use crate::clock::unix_ms;
use crate::gateway::{Address, Gateway, Object};

pub use self::inquiry::Inquiry;
pub use self::listings::Charge;

/// Bytes that a folder is said to have.
const FOLDER_BYTES: u64 = 4096;
/// How often a folder that was never listed is said to have changed, in seconds: clients then forget which names were missing.
const CHANGES_EACH_S: u32 = 60;

/// Memory of all that is known of origins at worst.
pub const ORIGIN_BYTES: u64 = KNOWN_BYTES + LISTINGS_BYTES;

/// What the origins of a gateway have, shared by all threads.
pub struct Origin {
    pub(super) gateway: Arc<Gateway>,
    /// Of handles, and of hashes of paths and names.
    key: Key,
    /// Its number in handles: of another origin, others are stale.
    number: u64,
    known: Known,
    listings: Listings,
    budget: Budget,
}

/// Who calls, and by which answers.
pub struct From<'a> {
    pub addr: IpAddr,
    /// Whom the answers of the upstream's thread are for.
    pub stream: StreamId,
    pub inquiry: &'a mut Inquiry,
}

impl Origin {
    /// With this key of handles.
    pub fn new(gateway: Arc<Gateway>, key: &Key) -> Origin {
        let name = gateway.origins.first().map_or("", Address::shown);
        let (high, low) = (
            hash(name.as_bytes()),
            hash(&[name.as_bytes(), b"/"].concat()),
        );
        Origin {
            number: u64::from(high) << 32 | u64::from(low),
            gateway,
            key: key.clone(),
            known: Known::default(),
            listings: Listings::default(),
            budget: Budget::default(),
        }
    }

    /// Carries out a call as far as is known, or says what is to be asked ([`Outcome::Asks`]).
    pub fn carry_out(&self, exports: &Exports, request: &Request<'_>, from: From<'_>) -> Outcome {
        procedures::carry_out(self, exports, request, from)
    }

    /// Memory for a call that waits for an answer; `None`: too many wait.
    pub fn charge(&self, bytes: usize) -> Option<Charge> {
        let mut charge = self.budget.nothing();
        charge.take(bytes).then_some(charge)
    }

    /// Whether the origins are buckets.
    fn has_buckets(&self) -> bool {
        self.gateway.has_buckets()
    }

    /// A listing has come.
    fn listed(&self, path: &[u8], names: &Arc<Names>) {
        self.listings.keep(path, names);
        let now_unix_s = unix_s();
        self.known
            .listed(self.key.hash(path), path, names.digest, now_unix_s);
    }

    /// The attributes of a folder. Its time changes with its names, as far as these were seen.
    fn folder(&self, path: &[u8], export: &Export) -> Attributes {
        let hash = self.key.hash(path);
        let since = self.known.listed_since(hash);
        let s = since.unwrap_or_else(|| unix_s() / CHANGES_EACH_S * CHANGES_EACH_S);
        let changed_at = Time { s, ns: 0 };
        Attributes {
            kind: Kind::Folder,
            mode: 0o555,
            links: 2,
            uid: export.spec.anonuid,
            gid: export.spec.anongid,
            size_bytes: FOLDER_BYTES,
            used_bytes: FOLDER_BYTES,
            device: Device { major: 0, minor: 0 },
            file_system: self.number,
            file_id: hash,
            read_at: changed_at,
            written_at: changed_at,
            changed_at,
        }
    }

    /// The attributes of a file. Another version has another time of change, by its entity tag: so clients forget what they have of it.
    fn file(&self, path: &[u8], object: &Object, export: &Export) -> Attributes {
        let validators = &object.validators;
        let modified_s = validators.last_modified_unix_s.unwrap_or(0);
        let s = u32::try_from(modified_s).unwrap_or(u32::MAX);
        let tag = validators.etag.as_ref().map_or(&b""[..], ETag::opaque);
        let ns = self.key.hash(tag) % 1_000_000_000;
        let written_at = Time { s, ns: 0 };
        Attributes {
            kind: Kind::Regular,
            mode: 0o444,
            links: 1,
            used_bytes: object.len_bytes,
            size_bytes: object.len_bytes,
            file_id: self.key.hash(path),
            read_at: written_at,
            written_at,
            changed_at: Time { s, ns: ns as u32 },
            ..self.folder(path, export)
        }
    }
}

fn unix_s() -> u32 {
    u32::try_from(unix_ms() / 1000).unwrap_or(u32::MAX)
}
