use super::*;
use headstart_core::Rng;

fn random(rng: &mut Rng, len: usize) -> Vec<TokenId> {
    (0..len).map(|_| rng.below(100_000) as TokenId).collect()
}

fn known(contents: &mut ContentMemory, tokens: &[TokenId]) -> Vec<bool> {
    let (mut known, mut at) = (vec![false; tokens.len()], 0);
    let fresh = contents.look(tokens, &mut |start, end| {
        assert!(start >= at && start < end, "in order");
        at = end;
        known[start..end].fill(true);
    });
    contents.enter(&fresh);
    known
}

#[test]
fn nothing_is_known_at_first_and_all_of_it_the_second_time() {
    let mut rng = Rng::new(1);
    let mut contents = ContentMemory::new(1 << 16, NameSecret::new(5));
    for len in [0, 1, 15, 16, 23, 24, 100, 1_000] {
        let tokens = random(&mut rng, len);
        assert!(!known(&mut contents, &tokens).contains(&true), "{len}");
        let again = known(&mut contents, &tokens);
        assert!(again.iter().all(|&is_known| is_known == (len >= WINDOW)), "{len}");
    }
}

/// Known text in new text, at any place: its borders are found.
#[test]
fn known_text_is_found_wherever_it_stands() {
    let mut rng = Rng::new(2);
    let mut contents = ContentMemory::new(1 << 20, NameSecret::new(5));
    let (mut wrong, mut all) = (0, 0);
    for _ in 0..200 {
        let old = random(&mut rng, WINDOW + SPREAD + 200);
        known(&mut contents, &old);
        let cut = rng.below(150);
        let old = &old[cut..cut + WINDOW + SPREAD - 1];
        let front = 50 + rng.below(50);
        let mut tokens = random(&mut rng, front);
        tokens.extend(old);
        tokens.extend(random(&mut rng, 80));
        for (at, is_known) in known(&mut contents, &tokens).into_iter().enumerate() {
            let truth = (front..front + old.len()).contains(&at);
            wrong += u32::from(is_known != truth);
            all += 1;
        }
    }
    // Marks of two tokens agree by chance once in 65,536 times.
    assert!(wrong <= 1, "{wrong} of {all} tokens");
}

/// Text that is used stays known, however much other text comes.
#[test]
fn a_full_memory_forgets_what_is_not_used_and_says_so() {
    let mut rng = Rng::new(3);
    let mut contents = ContentMemory::new(1 << 12, NameSecret::new(5));
    let (used, unused) = (random(&mut rng, 300), random(&mut rng, 300));
    known(&mut contents, &used);
    known(&mut contents, &unused);
    for _ in 0..100 {
        let mut tokens = random(&mut rng, 500);
        tokens.extend(&used);
        let known = known(&mut contents, &tokens);
        assert!(known[500..].iter().all(|&is_known| is_known));
    }
    assert!(!known(&mut contents, &unused).contains(&true));
    let (entered, forgotten) = contents.counts();
    assert!(forgotten > 0 && forgotten < entered);
}
