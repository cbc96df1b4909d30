//! Where the watched directories are: the kernel names a directory by its watch, and clients by its path. Pure.
//!
//! A directory that was moved or deleted is *detached* first: its path is unknown, and so is that of everything below it. A later event
//! may attach it again, at another place. `take_detached` gives up what is still detached.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The watched directories. `W` is the kernel's name for a watch.
pub struct Places<W> {
    nodes: HashMap<W, Node<W>>,
    root: W,
    detached: BTreeSet<W>,
}

struct Node<W> {
    /// The directory above, and the name in it. `None` for the root and for what is detached.
    at: Option<(W, Vec<u8>)>,
    children: BTreeMap<Vec<u8>, W>,
}

/// What was known of a directory before it was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Unknown,
    Detached,
    Attached,
}

impl<W: Copy + Ord + std::hash::Hash> Places<W> {
    pub fn new(root: W) -> Self {
        let nodes = HashMap::from([(root, Node { at: None, children: BTreeMap::new() })]);
        Self { nodes, root, detached: BTreeSet::new() }
    }

    pub fn root(&self) -> W {
        self.root
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn child(&self, parent: W, name: &[u8]) -> Option<W> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    /// The watch of the directory at this path below the root.
    pub fn at(&self, path: &[u8]) -> Option<W> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.try_fold(self.root, |parent, name| self.child(parent, name))
    }

    /// The path of a directory below the root. Empty for the root, `None` for one that is unknown or detached.
    pub fn path(&self, watch: W) -> Option<Vec<u8>> {
        let (mut names, mut here) = (Vec::new(), watch);
        while here != self.root {
            let (parent, name) = self.nodes.get(&here)?.at.as_ref()?;
            names.push(name.as_slice());
            here = *parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Notes that a directory is at this place, with all that is known below it. What was there before is detached.
    pub fn attach(&mut self, watch: W, parent: W, name: &[u8]) -> Before {
        // A directory that seems to be inside of itself was moved meanwhile, and an event about that will come.
        if watch == self.root || !self.nodes.contains_key(&parent) || self.is_above(watch, parent) {
            return Before::Attached;
        }
        if self.child(parent, name) == Some(watch) {
            return Before::Attached;
        }
        let before = match self.nodes.get(&watch) {
            None => Before::Unknown,
            Some(_) if self.detached.contains(&watch) => Before::Detached,
            Some(_) => Before::Attached,
        };
        self.detach(watch);
        if let Some(displaced) = self.child(parent, name) {
            self.detach(displaced);
        }
        let node = self.nodes.entry(watch).or_insert_with(|| Node { at: None, children: BTreeMap::new() });
        node.at = Some((parent, name.to_vec()));
        self.detached.remove(&watch);
        if let Some(parent) = self.nodes.get_mut(&parent) {
            parent.children.insert(name.to_vec(), watch);
        }
        before
    }

    fn is_above(&self, watch: W, below: W) -> bool {
        let mut here = below;
        loop {
            if here == watch {
                return true;
            }
            match self.nodes.get(&here).and_then(|node| node.at.as_ref()) {
                Some((parent, _)) => here = *parent,
                None => return false,
            }
        }
    }

    /// Notes that a directory is not where it was.
    pub fn detach(&mut self, watch: W) {
        if watch == self.root || !self.nodes.contains_key(&watch) {
            return;
        }
        let at = self.nodes.get_mut(&watch).and_then(|node| node.at.take());
        if let Some((parent, name)) = at
            && let Some(parent) = self.nodes.get_mut(&parent)
        {
            parent.children.remove(&name);
        }
        self.detached.insert(watch);
    }

    /// Forgets a watch that the kernel has removed. What was below it is detached.
    pub fn forget(&mut self, watch: W) {
        if watch == self.root {
            return;
        }
        self.detach(watch);
        self.detached.remove(&watch);
        for child in self.nodes.remove(&watch).map(|node| node.children).unwrap_or_default().into_values() {
            if let Some(node) = self.nodes.get_mut(&child) {
                node.at = None;
                self.detached.insert(child);
            }
        }
    }

    /// Forgets all that is detached, with everything below it, and returns it.
    pub fn take_detached(&mut self) -> Vec<W> {
        let mut gone: Vec<W> = std::mem::take(&mut self.detached).into_iter().collect();
        let mut seen = 0;
        while let Some(watch) = gone.get(seen).copied() {
            seen += 1;
            gone.extend(self.nodes.remove(&watch).map(|node| node.children).unwrap_or_default().into_values());
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_directory_takes_everything_below_it_along() {
        let mut places = Places::new(0);
        assert_eq!(places.attach(1, 0, b"a"), Before::Unknown);
        places.attach(2, 1, b"b");
        places.attach(3, 0, b"z");
        assert_eq!(places.path(2).unwrap(), b"a/b");
        assert_eq!(places.at(b"a/b"), Some(2));
        places.detach(1);
        assert_eq!((places.path(1), places.path(2), places.at(b"a/b")), (None, None, None));
        assert_eq!(places.attach(1, 3, b"c"), Before::Detached);
        assert_eq!(places.path(2).unwrap(), b"z/c/b");
        assert!(places.take_detached().is_empty());
    }

    #[test]
    fn what_is_replaced_is_detached_and_can_come_back() {
        let mut places = Places::new(0);
        places.attach(1, 0, b"x");
        places.attach(2, 0, b"x");
        assert_eq!((places.path(1), places.path(2).as_deref()), (None, Some(&b"x"[..])));
        assert_eq!(places.attach(1, 0, b"y"), Before::Detached);
        assert_eq!(places.path(1).unwrap(), b"y");
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let mut places = Places::new(0);
        places.attach(1, 0, b"a");
        places.attach(2, 1, b"b");
        places.attach(3, 2, b"c");
        places.forget(1);
        assert_eq!(places.path(3), None);
        assert_eq!(places.take_detached(), [2, 3]);
        assert_eq!(places.len(), 1);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Attach(u8, u8, u8),
        Detach(u8),
        Forget(u8),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..12, 0u8..12, 0u8..4).prop_map(|(watch, parent, name)| Step::Attach(watch, parent, name)),
            1 => (0u8..12).prop_map(Step::Detach),
            1 => (0u8..12).prop_map(Step::Forget),
            1 => Just(Step::Take),
        ]
    }

    proptest! {
        #[test]
        fn every_path_leads_back_to_its_watch_and_nothing_is_kept_that_has_none(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut places = Places::new(0u8);
            for step in steps {
                match step {
                    Step::Attach(watch, parent, name) => { places.attach(watch, parent, &[b'a' + name]); }
                    Step::Detach(watch) => places.detach(watch),
                    Step::Forget(watch) => places.forget(watch),
                    Step::Take => { places.take_detached(); }
                }
                for watch in 0..12 {
                    if let Some(path) = places.path(watch) {
                        prop_assert_eq!(places.at(&path), Some(watch));
                    }
                }
            }
            places.take_detached();
            let reachable = (0..12).filter(|watch| places.path(*watch).is_some()).count();
            prop_assert_eq!(reachable, places.len());
        }
    }
}
