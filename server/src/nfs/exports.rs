//! Which folders are exported, and to whom.

use std::net::IpAddr;

use ackpace_wire::limits::NFS_LISTING_BYTES_MAX;
use ackpace_wire::nfs3::Export as Listed;

use super::identity::hash;
use crate::options::ExportSpec;

/// All exports.
#[derive(Debug)]
pub struct Exports {
    all: Vec<Export>,
}

/// An exported folder.
#[derive(Debug)]
pub struct Export {
    /// Its number in handles: a hash of its path, so that it outlives a restart with other exports.
    pub number: u32,
    /// How it was written.
    pub spec: ExportSpec,
    clients: Vec<String>,
}

/// Why a client has no export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoExport {
    /// There is none.
    Unknown,
    /// It is for others.
    Refused,
}

impl Export {
    /// The folder below the served directory: without a slash before it, empty for all of it.
    pub fn folder(&self) -> &[u8] {
        let path = self.spec.path.as_bytes();
        path.strip_prefix(b"/").unwrap_or(path)
    }

    /// Whether a path below the served directory is in it.
    pub fn has(&self, path: &[u8]) -> bool {
        let folder = self.folder();
        match path.strip_prefix(folder) {
            Some(rest) => folder.is_empty() || rest.is_empty() || rest[0] == b'/',
            None => false,
        }
    }

    fn is_for(&self, client: IpAddr) -> bool {
        self.spec.clients.iter().any(|network| network.has(client))
    }
}

impl Exports {
    /// These exports. Of those with one path, the first one that has a client's address holds for it.
    ///
    /// # Errors
    /// If two paths have one number: the paths.
    pub fn new(specs: &[ExportSpec]) -> Result<Exports, [String; 2]> {
        let mut all: Vec<Export> = Vec::new();
        for spec in specs {
            let number = hash(spec.path.as_bytes());
            let same = all.iter().find(|other| other.number == number);
            if let Some(other) = same.filter(|other| other.spec.path != spec.path) {
                return Err([other.spec.path.clone(), spec.path.clone()]);
            }
            all.push(Export {
                number,
                clients: spec.clients.iter().map(ToString::to_string).collect(),
                spec: spec.clone(),
            });
        }
        Ok(Exports { all })
    }

    /// The export of a number that came in a handle, for this client.
    pub fn of_number(&self, number: u32, client: IpAddr) -> Result<&Export, NoExport> {
        self.first(client, |export| export.number == number)
    }

    /// The innermost export of a folder for this client.
    pub fn of_folder(&self, path: &[u8], client: IpAddr) -> Result<&Export, NoExport> {
        let mine = self.all.iter().filter(|export| export.has(path));
        let longest = mine
            .filter(|export| export.is_for(client))
            .map(|export| export.folder().len())
            .max();
        self.first(client, |export| {
            let is_longest = longest.is_none_or(|len| export.folder().len() == len);
            export.has(path) && is_longest
        })
    }

    fn first(&self, client: IpAddr, is: impl Fn(&Export) -> bool) -> Result<&Export, NoExport> {
        let mut found = Err(NoExport::Unknown);
        for export in self.all.iter().filter(|export| is(export)) {
            if export.is_for(client) {
                return Ok(export);
            }
            found = Err(NoExport::Refused);
        }
        found
    }

    /// Calls `told` with what EXPORT tells of each, up to the length that one reply may have.
    pub fn listed<T>(&self, told: impl FnOnce(&[Listed<'_>]) -> T) -> T {
        let mut left_bytes = NFS_LISTING_BYTES_MAX as usize;
        let told_of = self.all.iter().take_while(|export| {
            let text_bytes: usize = export.clients.iter().map(|text| text.len() + 12).sum();
            let bytes = export.spec.path.len() + 16 + text_bytes;
            left_bytes = left_bytes.saturating_sub(bytes);
            left_bytes > 0
        });
        let told_of: Vec<(&Export, Vec<&[u8]>)> = told_of
            .map(|export| {
                let clients = export.clients.iter().map(|client| client.as_bytes());
                (export, clients.collect())
            })
            .collect();
        let listed: Vec<Listed<'_>> = told_of
            .iter()
            .map(|(export, clients)| Listed {
                path: export.spec.path.as_bytes(),
                clients,
            })
            .collect();
        told(&listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_export_that_is_for_a_client_holds() {
        let specs = [
            "/=10.0.0.0/8",
            "/a/b=10.0.0.1,no_root_squash",
            "/a/b=10.0.0.0/16",
            "/ab=*",
        ];
        let specs = specs.map(|text| ExportSpec::parse(text).expect("a good one"));
        let exports = Exports::new(&specs).expect("other numbers");
        let of = |path: &str, client: &str| {
            let client = client.parse().expect("an address");
            let export = exports.of_folder(path.as_bytes(), client);
            export.map(|export| (&*export.spec.path, export.spec.squash))
        };
        use crate::options::Squash::{None, Root};
        assert_eq!(of("a/b/c", "10.0.0.1"), Ok(("/a/b", None)));
        assert_eq!(of("a/b", "10.0.0.2"), Ok(("/a/b", Root)));
        assert_eq!(of("a/bc", "10.0.0.2"), Ok(("/", Root)));
        assert_eq!(of("a/b", "10.1.0.2"), Ok(("/", Root)));
        assert_eq!(of("a/b", "192.0.2.1"), Err(NoExport::Refused));
        assert_eq!(of("ab", "192.0.2.1"), Ok(("/ab", Root)));
        let number = hash(b"/a/b");
        let of = |client: &str| {
            let client = client.parse().expect("an address");
            let export = exports.of_number(number, client);
            export.map(|export| export.spec.squash)
        };
        assert_eq!(of("10.0.0.1"), Ok(None));
        assert_eq!(of("10.0.0.2"), Ok(Root));
        assert_eq!(of("10.1.0.2"), Err(NoExport::Refused));
        let nobody = "::1".parse().expect("an address");
        let unknown = exports.of_number(1, nobody).map(|export| export.number);
        assert_eq!(unknown, Err(NoExport::Unknown));
    }
}
