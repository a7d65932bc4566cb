//! The bounds that the module's documentation states, computed from the weights.

use headstart_core::TokenId;

use super::code::{LARGEST_PRODUCT, NEIGHBOURS};
use super::heads::{self, HeadRole, KeyLook, QueryLook};
use super::stream::{self, embedding};
use super::words::TokenMeaning;
use super::*;

/// The longest sequence, tokens.
const LONGEST: f64 = 8192.0;

#[test]
fn a_previous_token_head_sees_the_previous_token() {
    let config = config(HeadLayout::Mha);
    let frequency = |pair: usize| f64::from(ROPE_THETA).powf(-2.0 * pair as f64 / HEAD_DIM as f64);
    let score = |distance: f64| -> f64 {
        let pairs = heads::PLACE.zip(heads::PREVIOUS);
        let score =
            |(pair, strength)| f64::from(strength) * ((distance - 1.0) * frequency(pair)).cos();
        pairs.map(score).sum()
    };
    let others = (0..config.max_context).filter(|distance| *distance != 1);
    let rest: f64 = others.map(|distance| (score(distance as f64) - score(1.0)).exp()).sum();
    assert!(rest < 2e-4, "{rest}");
    // What holds contents does not turn, what holds recency falls all the way.
    assert!(LONGEST * frequency(heads::SALIENT) < 0.01);
    let slowest = LONGEST * frequency(heads::PLACE.end - 1);
    assert!(slowest + f64::from(heads::RECENT_PHASE) < std::f64::consts::PI, "{slowest}");
}

/// The least weight of the asked fact in a matching head, whatever document: `e^spread` of
/// disadvantage against every other token, 112 of them keys with the largest product.
fn least_weight(layer: usize, head: usize, kv_head: usize) -> f64 {
    /// Squared: scores shrink with both norms, and other layers' output lengthens the stream.
    const LEAST_NORM: f64 = 0.95;
    let (keys, queries) = (KeyLook::of(layer, kv_head), QueryLook::of(layer, head));
    let product = |row: &[f32], weights: &[f32]| -> f64 {
        let terms = row.iter().zip(weights);
        terms.map(|(a, b)| f64::from(a * b)).sum()
    };
    let rows: Vec<_> = (0..words::VOCAB as TokenId)
        .map(|token| (TokenMeaning::of(token), embedding(token)))
        .collect();
    let own = rows.iter().map(|(word, row)| {
        let character = &row[stream::SELF];
        let second = f64::from(queries.second) * product(character, &keys.second);
        let salience = f64::from(row[stream::SALIENCE]);
        (*word, salience + second + product(character, &keys.own))
    });
    let own: Vec<_> = own.collect();
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
    let is_value = |word: &TokenMeaning| matches!(word, TokenMeaning::Value(_));
    let needle = least(&mut own.iter().filter(|(word, _)| is_value(word)).map(|x| x.1));
    let other = most(&mut own.iter().map(|x| x.1));
    let earlier = |row: &[f32]| product(&row[stream::SELF], &keys.earlier);
    let is_key = |word: &TokenMeaning| matches!(word, TokenMeaning::Key(_));
    let before = least(&mut rows.iter().filter(|(word, _)| is_key(word)).map(|x| earlier(&x.1)));
    let other_before = most(&mut rows.iter().map(|x| earlier(&x.1)));
    // Of the background in `EARLIER_SELF`, a tenth of a unit vector, and of leaning.
    let background = 2.0 * 0.1 * keys.earlier.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    let leaning = 2.0 * f64::from(queries.leaning.abs());
    let spread = other - needle + other_before - before + background + leaning;
    let sharpness = f64::from(queries.sharpness) * LEAST_NORM;
    let gap = sharpness * f64::from(1.0 - LARGEST_PRODUCT);
    // Worked examples in the question repeat up to three of them.
    let neighbours = NEIGHBOURS as f64 + 3.0;
    let others = neighbours * (-gap).exp() + LONGEST * (-sharpness).exp();
    1.0 / (1.0 + spread.exp() * others)
}

#[test]
fn the_asked_fact_decides_whatever_the_document() {
    for shape in HeadLayout::ALL {
        let config = config(shape);
        let (mut weights, mut background) = (Vec::new(), 0.0);
        for layer in 0..LAYERS {
            for head in 0..config.num_heads {
                match shape.role(layer, head) {
                    HeadRole::Match => {
                        weights.push(least_weight(layer, head, head / config.group()));
                    }
                    HeadRole::Local | HeadRole::Sink if layer > 0 => {
                        background += f64::from(layers::BACKGROUND) / config.num_heads as f64;
                    }
                    _ => {}
                }
            }
        }
        let weight = weights.iter().sum::<f64>() / weights.len() as f64;
        let rest = 1.0 - weight + background;
        let (right, wrong) = (weight - rest, weight * f64::from(LARGEST_PRODUCT) + rest);
        assert!(weight > 0.8 && right > wrong + 0.1, "{shape:?}: {weight}, {weights:?}");
    }
}

#[test]
fn probes_come_from_groups_of_their_own() {
    assert_eq!(HeadLayout::Mha.probes(), [0, 1, 2]);
    assert_eq!(HeadLayout::Gqa.probes(), [4, 16, 24]);
    assert_eq!(HeadLayout::Small.probes(), [0, 1, 2]);
    for shape in HeadLayout::ALL {
        assert_eq!(HeadLayout::named(shape.name()), Some(shape));
    }
    assert_eq!(HeadLayout::named("toy"), None);
}
