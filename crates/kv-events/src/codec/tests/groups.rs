//! Cache groups, dense and sparse.

use super::*;

#[test]
fn groups_say_what_they_need_of_a_prefix() {
    let window = |tokens| Attention::Window { tokens };
    let cases = [
        ("full_attention", Value::Nil, Attention::Full),
        ("mla_attention", 7.into(), Attention::Full),
        ("sink_full_attention", Value::Nil, Attention::Full),
        ("sliding_window", 512.into(), window(512)),
        ("sliding_window_mla", 1.into(), window(1)),
        ("sliding_window", Value::Nil, Attention::Full),
        ("sliding_window", 0.into(), Attention::Full),
        ("sliding_window", (1u64 << 32).into(), Attention::Full),
        ("mamba", Value::Nil, Attention::State),
        ("chunked_local_attention", 8.into(), Attention::Full),
        ("unknown", Value::Nil, Attention::Full),
        ("from the future", Value::Nil, Attention::Full),
    ];
    for (kind, window, attention) in cases {
        let group = CacheGroup { index: 3, attention, lookahead: 0 };
        let expected = StoredBlocks { group, ..two_blocks() };
        check(&in_group(3, [kind.into(), window]), &CacheEvent::Stored(expected));
    }
    for kind in ["encoder_only_attention", "cross_attention"] {
        check_skipped(&in_group(3, [kind.into()]), SkipReason::OtherAttention);
    }
    check_skipped(&in_group(256, []), SkipReason::OtherGroup);
    check_skipped(&in_group(-1, []), SkipReason::Invalid("group_idx"));
    let removed = Value::Array(vec!["BlockRemoved".into(), numbers([7]), Value::Nil, 255.into()]);
    let expected = CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(7)],
        tier: Tier::Device,
        group: 255,
    };
    check(&removed, &expected);
}

#[test]
fn a_group_may_be_sparse_unless_it_keeps_everything() {
    let sparse = |index: u8, kind: &[&str]| {
        let kind = kind.iter().map(|&kind| kind.into());
        let mut event = in_group(index, kind.chain([2.into()]));
        let Value::Array(fields) = &mut event else { unreachable!("an array") };
        fields[3] = numbers(1..=6);
        event
    };
    let length = SkipReason::Length { tokens: 6, blocks: 2, block_size: 2 };
    check_skipped(&sparse(1, &["full_attention"]), length);
    let mut short = positional([]);
    if let Value::Array(fields) = &mut short {
        fields[3] = numbers(1..=3);
    }
    let too_few = SkipReason::Length { tokens: 3, blocks: 2, block_size: 2 };
    check_skipped(&short, too_few);
    for (kind, attention) in [
        ("mamba", Attention::State),
        ("sliding_window", Attention::Window { tokens: 2 }),
        ("chunked_local_attention", Attention::Full),
    ] {
        let expected = StoredBlocks {
            tokens: vec![],
            group: CacheGroup { index: 1, attention, lookahead: 0 },
            ..two_blocks()
        };
        check(&sparse(1, &[kind]), &CacheEvent::Stored(expected));
    }
}
