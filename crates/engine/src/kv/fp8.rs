//! Keys and values in one byte each: FP8 numbers over a power of two that a group of them shares.
//!
//! ```text
//! number = code × 2^exponent        code: E4M3, 0 and 2^-9 … 448, both signs, and NaN
//! ```
//!
//! A code has four significant bits over 18 powers of two. So it is the number's own size that
//! says how large its error is, unless it is some 2^-14 of its group's largest or less, and finer
//! groups win next to nothing, other than with integers. A group's exponent is the least under
//! which its largest number, rounded, is a code: a power of two, so that scaling loses nothing and
//! what was decoded is coded to the same bytes again. A unit that is loaded and stored does not
//! drift.
//!
//! Rounds to nearest, ties to even. The error of a number is at most a 17th of itself, or 2^-17 of
//! its group's largest where that is more. Signs of zeros stay. What is NaN stays NaN, and
//! infinities become NaN, because E4M3 has none: never a finite number. Finite numbers stay finite:
//! beyond 1.875 × 2^127, where four bits end, they become that, a 16th less at most. Plain
//! arithmetic that every CPU does alike.
//!
//! Source: OCP 8-bit Floating Point Specification 1.0 (E4M3); one power of two for several numbers
//! is from OCP Microscaling Formats 1.0, whose exponent is a bit lower and cuts the largest off.
//! Differs from both in the size of its groups.

use half::bf16;
use pulp::Arch;

/// Name of the format with its groups (`super::KvStorageFormat`), part of every block's identity:
/// another way to code needs another name.
pub const FORMAT: &str = "fp8-e4m3:2^n,head";

/// Least exponent of a group: what is decoded is still a multiple of the least bf16.
const LEAST: i32 = -124;

/// Greatest exponent of a group: 240 times that is the greatest f32 of four significant bits.
const GREATEST: i32 = 120;

/// Bits of an f32 behind the three of a code's fraction.
const CUT: u32 = 20;

/// Addend that rounds bits before they are cut: half, less the tie.
const HALF: u32 = (1 << (CUT - 1)) - 1;

/// The exponent of an f32 less that of a code with the same bits, where a code's bits have it.
const BIAS: u32 = (127 - 7) << 3;

/// Bits of an f32 without its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Bits of infinity: from here on nothing is a number.
const INFINITE: u32 = 0x7f80_0000;

/// Bits of 1.875 × 2^127.
const MOST: u32 = 0x7f70_0000;

/// The code that is no number.
const NAN: u32 = 0x7f;

/// The decoded bits of every NaN, without its sign.
const QUIET: u32 = 0x7fc0_0000;

/// Below this codes are multiples of 2^-9.
const LEAST_NORMAL: f32 = 1.0 / 64.0;

/// Distance between the least codes.
const QUANTUM: f32 = 1.0 / 512.0;

/// An f32 next to which f32s are a [`QUANTUM`] apart.
const ROUNDER: f32 = 16_384.0;

/// Codes a group of numbers and returns its exponent.
///
/// # Panics
/// When there are not as many codes as numbers.
pub fn encode(group: &[f32], codes: &mut [u8]) -> i8 {
    encode_as(group, codes, |number| number)
}

/// The same of bf16.
///
/// # Panics
/// When there are not as many codes as numbers.
pub fn encode_bf16(group: &[bf16], codes: &mut [u8]) -> i8 {
    encode_as(group, codes, |number| f32::from_bits(u32::from(number.to_bits()) << 16))
}

fn encode_as<T: Copy>(group: &[T], codes: &mut [u8], wide: impl Fn(T) -> f32) -> i8 {
    assert_eq!(group.len(), codes.len(), "one code for each number");
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let exponent = exponent_of(largest(group, &wide));
            // The opposite of an exponent lies in [-120, 124], so this is a normal f32.
            let down = power_of_two(-exponent);
            for (code, &number) in codes.iter_mut().zip(group) {
                *code = code_of(wide(number), down);
            }
            exponent as i8
        },
    )
}

/// Decodes a group. Any bytes are decoded to something.
///
/// # Panics
/// When there are not as many codes as numbers.
pub fn decode(codes: &[u8], exponent: i8, group: &mut [f32]) {
    decode_as(codes, exponent, group, |number| number);
}

/// The same to bf16, which has room for every number that was coded.
///
/// # Panics
/// When there are not as many codes as numbers.
pub fn decode_bf16(codes: &[u8], exponent: i8, group: &mut [bf16]) {
    decode_as(codes, exponent, group, |number| bf16::from_bits((number.to_bits() >> 16) as u16));
}

fn decode_as<T>(codes: &[u8], exponent: i8, group: &mut [T], narrow: impl Fn(f32) -> T) {
    assert_eq!(group.len(), codes.len(), "one code for each number");
    let up = scale_of(exponent);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (number, &code) in group.iter_mut().zip(codes) {
                *number = narrow(number_of(code, up));
            }
        },
    );
}

/// Bits of the greatest finite magnitude.
#[inline(always)]
fn largest<T: Copy>(group: &[T], wide: impl Fn(T) -> f32) -> u32 {
    let magnitude = |&number: &T| wide(number).to_bits() & MAGNITUDE;
    // All that there usually is to do; a condition in it would keep it from becoming vectors.
    let largest = group.iter().map(magnitude).fold(0, u32::max);
    if largest < INFINITE {
        largest
    } else {
        let finite = group.iter().map(magnitude).filter(|&bits| bits < INFINITE);
        finite.fold(0, u32::max)
    }
}

/// The exponent of a group whose greatest magnitude has these bits.
fn exponent_of(largest: u32) -> i32 {
    // Anything larger would be rounded up to infinity.
    let rounded = cut(largest.min(MOST));
    let (power, fraction) = ((rounded >> 3) as i32 - 127, rounded & 7);
    // 1.75 × 2^8 is the greatest code: what is rounded to 1.875 needs another power of two.
    let exponent = power - 8 + i32::from(fraction == 7);
    exponent.clamp(LEAST, GREATEST)
}

/// The exponent, and three bits of the fraction, to which an f32 without sign is rounded.
#[inline(always)]
fn cut(bits: u32) -> u32 {
    // Just under one half, and one more if the last bit that stays is odd: ties to even.
    bits.wrapping_add(HALF).wrapping_add((bits >> CUT) & 1) >> CUT
}

/// 2^`exponent`, of exponents of groups and their opposites.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Returns the factor that decodes a group's codes.
fn scale_of(exponent: i8) -> f32 {
    // Stored bytes may be anything, so an exponent out of range is brought into it.
    power_of_two(i32::from(exponent).clamp(LEAST, GREATEST))
}

/// Without branches or overflow checks, so that it compiles to vectors; so does the one below.
#[inline(always)]
fn code_of(number: f32, down: f32) -> u8 {
    let bits = number.to_bits();
    let magnitude = bits & MAGNITUDE;
    let scaled = f32::from_bits(magnitude.min(MOST)) * down;
    // Wraps for a small number, which takes the next code instead.
    let normal = cut(scaled.to_bits()).wrapping_sub(BIAS);
    // The sum rounds to a multiple of a quantum, which its low bits then count.
    let small = (scaled + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits());
    let code = if scaled < LEAST_NORMAL { small } else { normal };
    let code = if magnitude < INFINITE { code } else { NAN };
    (code | ((bits >> 24) & 0x80)) as u8
}

#[inline(always)]
fn number_of(code: u8, up: f32) -> f32 {
    let code = u32::from(code);
    let magnitude = code & 0x7f;
    let normal = f32::from_bits(magnitude.wrapping_add(BIAS) << CUT);
    let small = magnitude as i32 as f32 * QUANTUM;
    let scaled = if magnitude < 8 { small } else { normal } * up;
    let bits = if magnitude == NAN { QUIET } else { scaled.to_bits() };
    f32::from_bits(bits | ((code & 0x80) << 24))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Magnitude of a code by the specification, NaN's as if it were the next number.
    fn magnitude(code: u8) -> f64 {
        let (power, fraction) = (i32::from(code >> 3), f64::from(code & 7));
        match power {
            0 => fraction / 8.0 * f64::powi(2.0, -6),
            _ => (1.0 + fraction / 8.0) * f64::powi(2.0, power - 7),
        }
    }

    /// The nearest of all magnitudes, of two the even one.
    fn nearest(scaled: f64) -> u8 {
        let distance = |code: u8| (magnitude(code) - scaled).abs();
        let closer = |one: u8, other: u8| match distance(other).total_cmp(&distance(one)) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal if other.is_multiple_of(2) => other,
            _ => one,
        };
        (1..=0x7f).fold(0, closer)
    }

    /// As it is documented, number by number.
    fn reference(group: &[f32]) -> (Vec<u8>, i8) {
        let four_bits = 1.875 * f64::powi(2.0, 127);
        let size = |x: f32| f64::from(x.abs()).min(four_bits);
        let finite = group.iter().filter(|x| x.is_finite());
        let largest = finite.map(|&x| size(x)).fold(0.0, f64::max);
        let mut exponents = LEAST..=GREATEST;
        // Beyond 480, the number after the greatest, nothing fits.
        let scaled = |e: i32| largest / f64::powi(2.0, e);
        let fits = |&e: &i32| scaled(e) < 480.0 && nearest(scaled(e)) < 0x7f;
        let exponent = exponents.find(fits).expect("some exponent fits");
        let code = |&x: &f32| {
            let sign = u8::from(x.is_sign_negative()) << 7;
            sign | if x.is_finite() { nearest(size(x) / f64::powi(2.0, exponent)) } else { 0x7f }
        };
        (group.iter().map(code).collect(), exponent as i8)
    }

    fn coded(group: &[f32]) -> (Vec<u8>, i8) {
        let mut codes = vec![0; group.len()];
        let exponent = encode(group, &mut codes);
        (codes, exponent)
    }

    fn coded_bf16(group: &[bf16]) -> (Vec<u8>, i8) {
        let mut codes = vec![0; group.len()];
        let exponent = encode_bf16(group, &mut codes);
        (codes, exponent)
    }

    fn decoded((codes, exponent): &(Vec<u8>, i8)) -> Vec<f32> {
        let mut group = vec![0.0; codes.len()];
        decode(codes, *exponent, &mut group);
        let mut narrow = vec![bf16::ZERO; codes.len()];
        decode_bf16(codes, *exponent, &mut narrow);
        let is_same = |(wide, narrow): (&f32, &bf16)| {
            wide.to_bits() == narrow.to_f32().to_bits() || (wide.is_nan() && narrow.is_nan())
        };
        assert!(group.iter().zip(&narrow).all(is_same), "{group:?}");
        group
    }

    /// Numbers of all sizes around one, some of them extreme or none.
    fn random_group(rng: &mut Rng) -> Vec<f32> {
        let (power, spread) = (rng.below(300) as i32 - 160, 1 + rng.below(40));
        let number = |rng: &mut Rng| match rng.below(60) {
            0 => [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY][rng.below(5)],
            1 => [f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -1e-40][rng.below(5)],
            // Ties, and the codes themselves.
            2..20 => {
                let steps = 16.0 + rng.below(32) as f64;
                (steps * f64::powi(2.0, power - rng.below(spread) as i32)) as f32
            }
            _ => {
                let size = f64::powi(2.0, power - rng.below(spread) as i32);
                ((rng.next_f64() * 2.0 - 1.0) * size) as f32
            }
        };
        let mut group: Vec<f32> = (0..1 + rng.below(70)).map(|_| number(rng)).collect();
        if rng.below(2) == 0 {
            // Nothing extreme: the largest is the group's own.
            group.retain(|x| x.is_finite() && x.abs() < 1e38);
        }
        group
    }

    #[test]
    fn every_group_is_coded_as_documented() {
        for seed in 0..4_000 {
            let group = random_group(&mut Rng::new(seed));
            assert_eq!(coded(&group), reference(&group), "seed {seed}: {group:?}");
            // Without the instructions of this machine.
            let (codes, exponent) = coded(&group);
            let down = power_of_two(-i32::from(exponent));
            let plain: Vec<u8> = group.iter().map(|&x| code_of(x, down)).collect();
            assert_eq!(codes, plain, "seed {seed}: {group:?}");
            let narrow: Vec<bf16> = group.iter().map(|&x| bf16::from_f32(x)).collect();
            let wide: Vec<f32> = narrow.iter().map(|x| x.to_f32()).collect();
            assert_eq!(coded_bf16(&narrow), reference(&wide), "seed {seed}: {narrow:?}");
        }
    }

    #[test]
    fn what_was_decoded_is_coded_to_the_same_bytes() {
        for seed in 0..20_000 {
            let group = random_group(&mut Rng::new(seed));
            let once = coded(&group);
            let again = coded(&decoded(&once));
            assert_eq!(again, once, "seed {seed}: {group:?}");
        }
    }

    #[test]
    fn errors_are_a_17th_at_most_and_nothing_else_becomes_a_number() {
        for seed in 0..20_000 {
            let group = random_group(&mut Rng::new(seed));
            let largest = group.iter().filter(|x| x.is_finite());
            let largest = largest.fold(0.0, |most: f64, &x| most.max(f64::from(x).abs()));
            for (&x, &got) in group.iter().zip(&decoded(&coded(&group))) {
                let what = format!("seed {seed}: {x:e} became {got:e}");
                assert_eq!(x.is_sign_negative(), got.is_sign_negative(), "{what}");
                assert_eq!(x.is_finite(), got.is_finite(), "{what}");
                if x.is_finite() {
                    let (x, got) = (f64::from(x), f64::from(got));
                    let small = f64::powi(2.0, -17) * largest;
                    let (error, least) = ((x - got).abs(), f64::powi(2.0, -134));
                    let four_bits = 1.875 * f64::powi(2.0, 127);
                    let share = if x.abs() > four_bits { 16.0 } else { 17.0 };
                    let is_right = share * error <= x.abs() || error <= small.max(least);
                    assert!(is_right, "{what}, largest {largest:e}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for exponent in i8::MIN..=i8::MAX {
            let group = decoded_as_f32(&all, exponent);
            let up = f64::powi(2.0, i32::from(exponent).clamp(LEAST, GREATEST));
            for (code, got) in all.iter().zip(group) {
                let sign = if *code < 128 { 1.0 } else { -1.0 };
                match code & 0x7f {
                    0x7f => assert!(got.is_nan()),
                    code => assert_eq!(got, (sign * magnitude(code) * up) as f32),
                }
            }
        }
    }

    fn decoded_as_f32(codes: &[u8], exponent: i8) -> Vec<f32> {
        let mut group = vec![0.0; codes.len()];
        decode(codes, exponent, &mut group);
        group
    }

    /// Bytes as they are documented, which files hold.
    #[test]
    fn the_format_is_pinned() {
        let group = [1.0, -2.0, 0.3, 0.0, -0.0, f32::NAN, f32::INFINITY, 1e-9];
        let (codes, exponent) = coded(&group);
        assert_eq!(exponent, -7);
        assert_eq!(codes, [0x70, 0xf8, 0x62, 0x00, 0x80, 0x7f, 0x7f, 0x00]);
        assert_eq!(decoded(&(codes, exponent))[..3], [1.0, -2.0, 0.3125]);
        assert_eq!(coded(&[1.75]), (vec![0x7e], -8));
        assert_eq!(coded(&[1.875]), (vec![0x77], -7));
        assert_eq!(coded(&[]), (Vec::new(), LEAST as i8));
    }
}
