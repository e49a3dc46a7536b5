//! Several sites in one process.

use std::fs;
use std::path::Path;

use ackpace_core::conn::ObjectId;
use ackpace_core::units::Instant;
use ackpace_wire::hide::Hide;
use rustix::io::pread;

use super::*;
use crate::options::FollowSymlinks;
use crate::response_cache::{CachedResponse, Content, Key, Made, ResponseCache};
use crate::store::files::FileTable;

const NOW: Instant = Instant { us: 7 };

/// A site below `root`, whose file system is known.
pub fn site(table: &Arc<FileTable>, devices: &Arc<Devices>, root: &Path) -> Site {
    let dir = Descriptor::of(fs::File::open(root).expect("a root").into()).expect("open");
    devices.of(&*dir, dir.file_system());
    Site {
        root: Root::open(root, FollowSymlinks::Inside, &[], Hide::default())
            .expect("a root")
            .with(Arc::clone(devices)),
        files: table.site(),
        devices: Arc::clone(devices),
        types: Overrides::default(),
        index: Vec::new(),
        listing: false,
        siblings: Vec::new(),
        shelf: Shelf::new(1 << 20, None),
        ranges: Room::default(),
    }
}

/// The key of `GET /a`.
fn key(site: &Site) -> Key<'static> {
    Key {
        site: site.files.site(),
        path: b"/a"[..].into(),
        keep_alive: true,
    }
}

/// What the cache has for a request for `/a` to this site: the file's number, and the bytes.
fn cached(cache: &mut ResponseCache, site: &Site) -> Option<(ObjectId, Vec<u8>)> {
    let hit = cache.get(&key(site), &site.root, NOW)?;
    let CachedResponse::Whole { text, .. } = hit.response else {
        return None;
    };
    Some((hit.content.object, text.to_vec()))
}

/// Looks the file up in the site and caches its bytes.
fn keep(cache: &mut ResponseCache, site: &Site) -> Arc<File> {
    let served = find(site, b"/a");
    let mut bytes = [0; 16];
    let read = pread(&served.file.fd, &mut bytes, 0).expect("an open file");
    let made = Made {
        content: Content {
            object: served.file.id,
            file_system: served.file.fd.file_system(),
            inode: served.times.inode,
            version: served.version,
        },
        response: CachedResponse::whole(b"", &bytes[..read]),
        name: Some(c"a".into()),
    };
    assert!(cache.keep(&key(site), made, NOW), "there is room");
    served.file
}

fn find(site: &Site, path: &[u8]) -> Served {
    let query = Query {
        path: path.into(),
        accept_encoding: [].into(),
        format: Format::Html,
        chunked: None,
    };
    match site.find(&query, Wait::Yes) {
        Some(SiteAnswer::File(served)) => served,
        _ => panic!("it was just written"),
    }
}

#[test]
fn a_site_gets_no_file_number_and_no_response_of_another() {
    let dir = std::env::temp_dir().join(format!("ackpace-sites-{}", std::process::id()));
    for root in ["one", "two"] {
        fs::create_dir_all(dir.join(root)).expect("a directory");
        fs::write(dir.join(root).join("a"), root).expect("a file");
    }
    let (table, devices) = (Arc::default(), Arc::default());
    // Two over the same root, and one over another; the last is above the first.
    let roots = ["one", "one", "two", "."];
    let sites = roots.map(|root| site(&table, &devices, &dir.join(root)));
    fs::write(dir.join("a"), ".").expect("a file");
    let mut cache = ResponseCache::new(1 << 20);
    let mut files = Vec::<Arc<File>>::new();
    for (nth, site) in sites.iter().enumerate() {
        for other in &sites[nth..] {
            assert!(cached(&mut cache, other).is_none(), "kept for another site");
        }
        files.push(keep(&mut cache, site));
        let id = files[nth].id;
        assert!(files[..nth].iter().all(|before| before.id != id), "{id:?}");
    }
    for (nth, site) in sites.iter().enumerate() {
        let expected = (files[nth].id, roots[nth].into());
        assert_eq!(cached(&mut cache, site), Some(expected));
    }
    cache.forget(&key(&sites[0]));
    assert!(cached(&mut cache, &sites[0]).is_none());
    assert!(
        sites[1..]
            .iter()
            .all(|site| cached(&mut cache, site).is_some())
    );
    fs::remove_dir_all(&dir).expect("our own directory");
}

#[test]
fn one_file_by_two_paths_of_its_own_is_one_in_a_site_and_two_in_two_sites() {
    let dir = std::env::temp_dir().join(format!("ackpace-site-{}", std::process::id()));
    fs::create_dir_all(dir.join("inner")).expect("a directory");
    fs::write(dir.join("inner/a"), "a").expect("a file");
    fs::hard_link(dir.join("inner/a"), dir.join("a")).expect("a link");
    let (table, devices) = (Arc::default(), Arc::default());
    let (outer, inner) = (
        site(&table, &devices, &dir),
        site(&table, &devices, &dir.join("inner")),
    );
    let first = find(&outer, b"/inner/a").file;
    let by_another_name = find(&outer, b"/a");
    assert!(Arc::ptr_eq(&first, &by_another_name.file));
    assert_eq!(*by_another_name.path, *b"a");
    let other = find(&inner, b"/a").file;
    assert_ne!(first.id, other.id);
    assert_eq!(first.id.device, other.id.device, "one disk, one thread");
    assert_eq!((&*first.path, &*other.path), (&b"inner/a"[..], &b"a"[..]));
    fs::remove_dir_all(&dir).expect("our own directory");
}
