//! Fused attention over paged keys and values is attention with the whole score matrix.

use half::bf16;
use headstart_core::{BlockId, Rng};
use headstart_engine::cpu::attention::{Heads, LayerAttention, Queries};
use headstart_engine::kv::{Dtype, KvPool};
use headstart_engine::model::toy;

use crate::reference::naive_attention;

/// Random keys and values in shuffled blocks, the rest of the pool NaN.
fn check(heads: Heads, block_size: usize, sequences: &[(usize, usize)], dtype: Dtype) {
    let mut config = toy::config();
    (config.num_layers, config.num_kv_heads, config.head_dim) = (1, heads.num_kv, heads.dim);
    let mut rng = Rng::new(3);
    let blocks_of = |&(start, tokens): &(usize, usize)| (start + tokens).div_ceil(block_size);
    let num_blocks = 2 + sequences.iter().map(blocks_of).sum::<usize>();
    let mut pool = KvPool::new(&config, dtype, num_blocks, block_size);
    let mut ids: Vec<_> = (0..num_blocks as u32).map(BlockId).collect();
    rng.shuffle(&mut ids);
    let width = heads.num_kv * heads.dim;
    let poison = vec![f32::NAN; width];
    for block in 0..num_blocks as u32 {
        for slot in 0..block_size {
            pool.layer_mut(0).write(BlockId(block), slot, &poison, &poison);
        }
    }
    let mut random = |len: usize| -> Vec<f32> {
        (0..len).map(|_| bf16::from_f32(rng.next_f64() as f32 * 4.0 - 2.0).to_f32()).collect()
    };
    let (mut queries, mut q, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = &ids[..];
    for sequence in sequences {
        let (start, tokens) = *sequence;
        let (blocks, others) = rest.split_at(blocks_of(sequence));
        rest = others;
        let context = start + tokens;
        let (keys, values) = (random(context * width), random(context * width));
        for position in 0..context {
            let at = position * width..(position + 1) * width;
            let block = blocks[position / block_size];
            let layer = pool.layer_mut(0);
            layer.write(block, position % block_size, &keys[at.clone()], &values[at]);
        }
        let first_row = q.len() / (width * heads.group);
        let mine = random(tokens * width * heads.group);
        expected.extend(naive_attention(&mine, &keys, &values, start, heads));
        q.extend(mine);
        queries.push(Queries { first_row, num_tokens: tokens, start, blocks });
    }
    let mut out = vec![0.0; q.len()];
    let stride = width * heads.group;
    let attention =
        LayerAttention { q: &q, q_stride: stride, queries: &queries, kv: pool.layer(0), heads };
    attention.run(&mut Vec::new(), &mut out);
    for (at, (got, expected)) in out.iter().zip(&expected).enumerate() {
        assert!((got - expected).abs() < 2e-5, "{heads:?}, {sequences:?}, {at}: {got} {expected}");
    }
}

#[test]
fn paged_is_naive() {
    let gqa = Heads { num_kv: 2, group: 4, dim: 64 };
    let mha = Heads { num_kv: 3, group: 1, dim: 16 };
    let wide = Heads { num_kv: 1, group: 7, dim: 128 };
    let odd = Heads { num_kv: 2, group: 2, dim: 80 };
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for heads in [gqa, mha, wide, odd] {
            for block_size in [16, 32, 48] {
                check(heads, block_size, &[(0, 1), (17, 1), (300, 1)], dtype);
                check(heads, block_size, &[(0, 45), (128, 40), (5, 3)], dtype);
                check(heads, block_size, &[(127, 1), (126, 4), (255, 2)], dtype);
            }
        }
    }
}
