use headstart_core::Rng;

use super::*;
use crate::model::toy;

const BLOCKS: u32 = 5;

/// A pool of random numbers, the keys' some times as large as the values'.
fn pool(dtype: Dtype, stored: KvStorageFormat, block_size: usize) -> KvPool {
    let mut config = toy::config();
    (config.num_layers, config.num_kv_heads, config.head_dim) = (2, 3, 8);
    let pool = KvPool::new(&config, dtype, BLOCKS as usize, block_size);
    let mut pool = pool.with_stored(stored);
    let mut rng = Rng::new(1);
    let mut random = |size: f64| -> Vec<f32> {
        let number = |_| ((rng.next_f64() - 0.5) * size) as f32;
        (0..3 * 8).map(number).collect()
    };
    for layer in 0..2 {
        for block in 0..BLOCKS {
            for slot in 0..block_size {
                let (key, value) = (random(40.0), random(0.1));
                pool.layer_mut(layer).write(BlockId(block), slot, &key, &value);
            }
        }
    }
    pool
}

fn stored(layer: &LayerKv, block: u32) -> Vec<u8> {
    let mut bytes = vec![0xaa; layer.stored_bytes()];
    layer.store(BlockId(block), &mut bytes);
    bytes
}

/// A block's keys, and its values.
fn numbers(layer: &LayerKv, block: u32) -> [Vec<f32>; 2] {
    let range = layer.block_range(BlockId(block));
    [&layer.keys, &layer.values].map(|part| part.widen(range.clone(), &mut Vec::new()).to_vec())
}

#[test]
fn a_block_is_stored_loaded_and_stored_again_to_the_same_bytes() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (kept, block_size) in
            [(KvStorageFormat::Same, 16), (KvStorageFormat::Fp8, 16), (KvStorageFormat::Fp8, 32)]
        {
            let mut pool = pool(dtype, kept, block_size);
            let before = pool.layer(1).clone();
            let bytes = stored(&before, 2);
            pool.layer_mut(1).load(BlockId(4), &bytes);
            let after = pool.layer(1);
            assert_eq!(stored(after, 4), bytes, "{dtype:?} {kept:?}");
            for block in 0..4 {
                assert_eq!(numbers(after, block), numbers(&before, block), "{block}");
            }
            for (got, right) in numbers(after, 4).iter().zip(&numbers(&before, 2)) {
                let largest = right.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let errors = got.iter().zip(right).map(|(a, b)| (a - b).abs());
                let error = errors.fold(0.0, f32::max) / largest;
                match kept {
                    KvStorageFormat::Same => assert_eq!(got, right),
                    KvStorageFormat::Fp8 => assert!(error > 1e-3 && error <= 1.0 / 17.0, "{error}"),
                }
            }
        }
    }
}

#[test]
fn a_layer_is_as_long_as_is_said_without_a_pool() {
    let config = toy::config();
    for (dtype, stored, bytes) in [
        (Dtype::F32, KvStorageFormat::Same, 16_384),
        (Dtype::Bf16, KvStorageFormat::Same, 8_192),
        (Dtype::F32, KvStorageFormat::Fp8, 4_100),
        (Dtype::Bf16, KvStorageFormat::Fp8, 4_100),
    ] {
        let pool = KvPool::new(&config, dtype, 1, 16).with_stored(stored);
        assert_eq!(pool.layer(7).stored_bytes(), bytes);
        assert_eq!(stored.layer_bytes(&config, dtype, 16), bytes);
    }
}

#[test]
fn each_way_to_store_has_an_identity_of_its_own() {
    let names = [
        KvStorageFormat::Same.kv_dtype(Dtype::F32),
        KvStorageFormat::Same.kv_dtype(Dtype::Bf16),
        KvStorageFormat::Fp8.kv_dtype(Dtype::F32),
        KvStorageFormat::Fp8.kv_dtype(Dtype::Bf16),
    ];
    let expected = ["f32", "bf16", "f32/fp8-e4m3:2^n,head", "bf16/fp8-e4m3:2^n,head"];
    assert_eq!(names, expected);
    assert_eq!("fp8".parse(), Ok(KvStorageFormat::Fp8));
    let told = "int4".parse::<KvStorageFormat>().expect_err("unknown");
    assert!(told.contains("same, fp8"), "{told}");
}
