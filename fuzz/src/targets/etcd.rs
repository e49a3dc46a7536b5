//! Any bytes as an answer of etcd's JSON gateway: [`ackpace_wire::cluster::etcd`].

use ackpace_wire::cluster::etcd::{Entry, error_of, goes_on, is_name, is_written, lease, listing};
use ackpace_wire::limits::ETCD_ENTRIES_MAX;

/// Laws: a list is bounded and sorted, each of its names is one that a node may have, and an entry has one form.
pub fn etcd(data: &[u8]) {
    let _ = (lease(data), goes_on(data), is_written(data));
    if let Some(error) = error_of(data) {
        assert!(error.chars().count() <= 200 && !error.contains('\u{1b}'));
    }
    let Ok(list) = listing("/a", data) else {
        return;
    };
    assert!(list.nodes.len() + list.drains.len() <= ETCD_ENTRIES_MAX);
    assert!(list.nodes.is_sorted_by(|one, two| one.name < two.name));
    let names = list.nodes.iter().map(|node| &node.name).chain(&list.drains);
    { names }.for_each(|name| assert!(is_name(name)));
    for entry in list.nodes.iter().filter_map(|node| node.entry.as_ref()) {
        assert_eq!(Entry::parse(&entry.text()).as_ref(), Some(entry));
    }
}
