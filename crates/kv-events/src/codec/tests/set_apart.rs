//! Adapter, salt and images.

use super::*;

#[test]
fn the_salt_is_told_from_the_adapter() {
    let none = [&[][..], &[]];
    let event = |name: Value, first: &[Value]| with_keys(name, first, &[]);
    check(&event(Value::Nil, &["s".into()]), &apart(None, Some("s"), none));
    check(&event("a".into(), &["a".into()]), &apart(Some("a"), None, none));
    let alike = ["a".into(), "a".into()];
    check(&event("a".into(), &alike), &apart(Some("a"), Some("a"), none));
    let salted = map(&[("session_id", 7.into()), ("cache_salt", "s".into())]);
    check(&event(salted, &[]), &apart(None, Some("s"), none));
    check(&positional([7.into()]), &apart(Some("7"), None, none));
    check(&positional([0.into()]), &apart(None, None, none));
    let mut child = event("a".into(), &["a".into()]);
    if let Value::Array(fields) = &mut child {
        fields[2] = 9.into();
    }
    let behind = StoredBlocks {
        parent: Some(BlockHash::from_u64(9)),
        adapter: Some("a".into()),
        ..two_blocks()
    };
    check(&child, &CacheEvent::Stored(behind));
}

#[test]
fn images_set_their_blocks_apart() {
    let nil = Value::Nil;
    let keys = [pair("cat", 3), pair("dog", 9)];
    let cat_dog: &[(&[u8], i64)] = &[(b"cat", 3), (b"dog", 9)];
    let event = with_keys(nil.clone(), &keys, &[]);
    check(&event, &apart(None, None, [cat_dog, &[]]));
    let event = with_keys(nil.clone(), &[], &[pair("cat", -4), pair(vec![0xffu8], 0)]);
    check(&event, &apart(None, None, [&[], &[(b"cat", -4), (b"\xff", 0)]]));
    let digest = Value::from(vec![7u8; 32]);
    let all = ["a".into(), pair("cat", 3), "s".into(), digest];
    let event = with_keys("a", &all, &["a".into(), pair("cat", -1)]);
    let media = [&[(&b"cat"[..], 3), (&[7; 32][..], 0)][..], &[(b"cat", -1)]];
    check(&event, &apart(Some("a"), Some("s"), media));
    // Bare identifiers: one that continues in the second block is not a salt.
    let event = with_keys(nil.clone(), &["cat".into()], &["cat".into(), "dog".into()]);
    let media = [&[(&b"cat"[..], 0)][..], &[(b"cat", 0), (b"dog", 0)]];
    check(&event, &apart(None, None, media));
    let event = with_keys(nil.clone(), &["cat".into(), "s".into()], &["cat".into()]);
    let media = [&[(&b"cat"[..], 0)][..], &[(b"cat", 0)]];
    check(&event, &apart(None, Some("s"), media));
    // Whatever else stands there counts as it is spelled.
    let event = with_keys(nil, &[5.into(), map(&[]), Value::Array(vec![])], &[Value::Nil]);
    let media = [&[(&b"\x05"[..], 0), (b"\x80", 0), (b"\x90", 0)][..], &[]];
    check(&event, &apart(None, None, media));
}

#[test]
fn extra_keys_need_not_be_as_many_as_blocks() {
    let event =
        |keys: Vec<Value>| positional([Value::Nil, Value::Nil, Value::Nil, Value::Array(keys)]);
    let image = || Value::Array(vec![pair("cat", 1)]);
    let first = [&[(&b"cat"[..], 1)][..], &[]];
    check(&event(vec![image()]), &apart(None, None, first));
    let more = vec![image(), Value::Nil, image(), image()];
    check(&event(more), &apart(None, None, first));
    check(&event(vec![]), &apart(None, None, [&[], &[]]));
    let many = vec![Value::from(7); 257];
    let spelled = [7; 257];
    let as_one = [&[(&spelled[..], 0)][..], &[]];
    check(&event(vec![many.into()]), &apart(None, None, as_one));
    // Without a list around it, a key stands for itself.
    let second = [&[][..], &[(&b"\x01"[..], 0)]];
    check(&event(vec![Value::Nil, vec![1u8].into()]), &apart(None, None, second));
}
