//! The store of images: layers that are shared, counted, in use and removed.

use super::*;
use oci_registry::{Digest, RuntimeConfig};

fn hex(n: u8) -> String {
    Digest::of(&[n]).hex().to_owned()
}

fn store() -> (tempfile::TempDir, ImageStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::new(folder.path());
    store.make().unwrap();
    (folder, store)
}

fn add_layer(store: &ImageStore, n: u8) {
    let staging = store.stage().unwrap();
    let tree = staging.make("tree").unwrap();
    std::fs::write(tree.join("file"), "content").unwrap();
    store.add_layer(&tree, &hex(n), &LayerInfo { bytes: 7, files: 1 }).unwrap();
}

fn add_image(store: &ImageStore, name: &str, layers: &[u8]) {
    let layers = layers.iter().map(|n| hex(*n)).collect();
    // An import of an archive in layers has a digest, too.
    let digest = Some(Digest::of(name.as_bytes()));
    let image = StoredImage {
        name: name.into(),
        digest,
        layers,
        created: None,
        stored: 0,
        config: RuntimeConfig::default(),
        committed_from: None,
        user: None,
    };
    let lock = store.try_lock_to_add().unwrap().unwrap();
    store.add_image(&image, &lock).unwrap();
}

fn layers(store: &ImageStore) -> Vec<u8> {
    (0..9).filter(|n| store.has_layer(&hex(*n))).collect()
}

fn remove(store: &ImageStore, name: &str) -> Removed {
    store.remove(name, &store.try_lock_to_remove().unwrap().unwrap()).unwrap().unwrap()
}

#[test]
fn an_image_is_found_by_every_way_to_write_its_name() {
    let (_folder, store) = store();
    add_image(&store, "docker.io/library/python:3", &[1]);
    add_image(&store, "mine", &[1]);
    for name in ["python:3", "library/python:3", "docker.io/library/python:3"] {
        assert_eq!(store.find(name).map(|image| image.short_name()), Some("python:3".into()), "{name}");
    }
    assert_eq!(store.find("mine").unwrap().short_name(), "mine");
    for other in ["python", "mine:latest", "../mine", ""] {
        assert_eq!(store.find(other), None, "{other:?}");
    }
    assert_eq!(store.images().len(), 2);
}

#[test]
fn a_layer_stays_as_long_as_an_image_or_a_sandbox_needs_it() {
    let (folder, store) = store();
    (1..=4).for_each(|n| add_layer(&store, n));
    add_image(&store, "a", &[1, 2]);
    add_image(&store, "b", &[1, 3]);
    let sandbox = folder.path().join("sandbox");
    std::fs::create_dir(&sandbox).unwrap();
    store.begin_use(&sandbox, &[hex(1), hex(3)]).unwrap();
    assert_eq!(remove(&store, "a"), Removed { layers: 1, bytes: 7, leftovers: 0 });
    assert_eq!(layers(&store), [1, 3, 4], "4 is no layer of the image");
    assert_eq!(remove(&store, "b").layers, 0, "a sandbox uses both");
    let prune = || store.prune(&store.try_lock_to_remove().unwrap().unwrap()).unwrap();
    assert_eq!((prune().layers, layers(&store)), (1, vec![1, 3]));
    // A sandbox that is gone needs nothing, even if nobody said that its use ended.
    std::fs::remove_dir(&sandbox).unwrap();
    assert_eq!((prune().layers, layers(&store)), (2, Vec::new()));
    assert!(store.remove("a", &store.try_lock_to_remove().unwrap().unwrap()).unwrap().is_none());
}

#[test]
fn a_use_of_a_layer_that_is_gone_is_refused() {
    let (folder, store) = store();
    let refused = store.begin_use(folder.path(), &[hex(1)]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::NotFound);
}

#[test]
fn nothing_is_removed_while_somebody_adds_and_nothing_added_while_somebody_removes() {
    let (_folder, store) = store();
    let adding = store.try_lock_to_add().unwrap().unwrap();
    let also = store.try_lock_to_add().unwrap();
    assert!(also.is_some() && store.try_lock_to_remove().unwrap().is_none());
    drop((adding, also));
    let removing = store.try_lock_to_remove().unwrap().unwrap();
    assert!(store.try_lock_to_add().unwrap().is_none() && store.try_lock_to_remove().unwrap().is_none());
    drop(removing);
    let layer = store.try_lock_layer(&hex(1)).unwrap();
    assert!(layer.is_some() && store.try_lock_layer(&hex(1)).unwrap().is_none());
    assert!(store.try_lock_layer(&hex(2)).unwrap().is_some());
}

#[test]
fn what_interrupted_pulls_left_is_removed_and_what_is_complete_stays() {
    let (_folder, store) = store();
    add_layer(&store, 1);
    add_image(&store, "a", &[1]);
    std::fs::write(store.blob(&hex(2)), "half a blob").unwrap();
    std::mem::forget(store.stage().unwrap());
    let removed = store.prune(&store.try_lock_to_remove().unwrap().unwrap()).unwrap();
    assert_eq!((removed.leftovers, removed.layers, removed.bytes), (2, 0, 11));
    assert!(!store.blob(&hex(2)).exists() && store.find("a").is_some() && layers(&store) == [1]);
}

#[test]
fn a_start_discards_what_is_half_made_and_keeps_downloads() {
    let (folder, store) = store();
    ImageStore::new(&folder.path().join("nowhere")).discard_leftovers().unwrap();
    assert!(!folder.path().join("nowhere").exists());
    add_layer(&store, 1);
    add_image(&store, "a", &[1]);
    std::fs::write(store.blob(&hex(2)), "half a blob").unwrap();
    write_json(&store.info(&hex(3)), &LayerInfo::default()).unwrap();
    std::fs::write(store.layers_dir().join("x.17.new"), "").unwrap();
    let staging = store.stage().unwrap();
    staging.make("tree").unwrap();
    let adding = store.try_lock_to_add().unwrap();
    store.discard_leftovers().unwrap();
    assert!(staging.path().exists(), "somebody may need it");
    drop(adding);
    store.discard_leftovers().unwrap();
    let names = |place: &str| std::fs::read_dir(store.root.join(place)).unwrap().count();
    assert_eq!((names(STAGING), names(DISCARDED), names(LAYERS), names(BLOBS)), (0, 0, 2, 1));
    assert!(store.find("a").is_some() && layers(&store) == [1] && store.layer_info(&hex(1)).bytes == 7);
}

#[test]
fn what_is_staged_goes_with_its_owner() {
    let (_folder, store) = store();
    let path = {
        let staging = store.stage().unwrap();
        staging.make("tree").unwrap();
        staging.path().to_owned()
    };
    assert!(!path.exists());
}
