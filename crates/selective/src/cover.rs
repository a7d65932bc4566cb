//! The fewest vertices that touch every edge of a bipartite graph.
//!
//! ```text
//! unit 0 ──token── chunk 0      every token lies in a unit and in a pack's chunk; one of the two
//! unit 1 ──token── chunk 1      has to be read for it
//! ```
//!
//! Source: König 1931: as many as the largest matching has edges. The matching is grown along
//! augmenting paths found breadth first (Kuhn 1955), after a greedy start. A search that finds
//! none leaves vertices that no later search can use: they are never looked at again, and in the
//! end they are what the cover follows from.

const NONE: u32 = u32::MAX;

/// A graph that grows by its left vertices.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Per left vertex: where its edges end in `ends`.
    starts: Vec<u32>,
    /// The right vertices of all edges.
    ends: Vec<u32>,
    num_right: usize,
}

/// Vertices of the cover, one flag per vertex.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VertexCover {
    pub(super) left: Vec<bool>,
    pub(super) right: Vec<bool>,
}

/// A matching, and what searches have left behind.
struct Matching<'a> {
    graph: &'a Graph,
    of_left: Vec<u32>,
    of_right: Vec<u32>,
    /// Per right vertex: the left one that a search came from, and which search it was.
    came_from: Vec<(u32, u32)>,
    is_dead_left: Vec<bool>,
    is_dead_right: Vec<bool>,
    queue: Vec<u32>,
}

impl Graph {
    /// Without edges, to `num_right` right vertices.
    pub(super) fn new(num_right: usize) -> Self {
        Self { starts: vec![0], ends: Vec::new(), num_right }
    }

    /// Adds a left vertex; an edge may be given more than once.
    pub(super) fn push(&mut self, ends: impl Iterator<Item = u32>) {
        self.ends.extend(ends);
        self.starts.push(self.ends.len() as u32);
    }

    fn num_left(&self) -> usize {
        self.starts.len() - 1
    }

    fn ends(&self, left: u32) -> &[u32] {
        let [start, end] = [left, left + 1].map(|at| self.starts[at as usize] as usize);
        &self.ends[start..end]
    }

    /// A smallest cover. O(edges) for the greedy start and all searches that fail, O(edges) more
    /// for each that does not.
    pub(super) fn cover(&self) -> VertexCover {
        let mut matching = Matching {
            graph: self,
            of_left: vec![NONE; self.num_left()],
            of_right: vec![NONE; self.num_right],
            came_from: vec![(NONE, NONE); self.num_right],
            is_dead_left: vec![false; self.num_left()],
            is_dead_right: vec![false; self.num_right],
            queue: Vec::new(),
        };
        matching.start();
        for left in 0..self.num_left() as u32 {
            if matching.of_left[left as usize] == NONE {
                matching.search(left);
            }
        }
        VertexCover {
            left: matching.is_dead_left.iter().map(|dead| !dead).collect(),
            right: matching.is_dead_right,
        }
    }
}

impl Matching<'_> {
    /// Matches each left vertex with its first free neighbour.
    fn start(&mut self) {
        for left in 0..self.graph.num_left() as u32 {
            let ends = self.graph.ends(left).iter();
            let mut free = ends.filter(|&&end| self.of_right[end as usize] == NONE);
            if let Some(&right) = free.next() {
                self.of_left[left as usize] = right;
                self.of_right[right as usize] = left;
            }
        }
    }

    /// Looks for a path from an unmatched left vertex to an unmatched right one, and exchanges
    /// what is matched along it; without one, all that was reached is dead.
    fn search(&mut self, from: u32) {
        self.queue.clear();
        self.queue.push(from);
        let mut at = 0;
        while let Some(&left) = self.queue.get(at) {
            at += 1;
            for &right in self.graph.ends(left) {
                let index = right as usize;
                // Dead vertices lead to no free one, in this search or in any later one.
                if self.is_dead_right[index] || self.came_from[index].1 == from {
                    continue;
                }
                self.came_from[index] = (left, from);
                match self.of_right[index] {
                    NONE => return self.exchange(right),
                    matched => self.queue.push(matched),
                }
            }
        }
        // No augmenting path starts here. By König, the cover has the right vertices reached, not
        // the left.
        for &left in &self.queue {
            self.is_dead_left[left as usize] = true;
            for &right in self.graph.ends(left) {
                self.is_dead_right[right as usize] = true;
            }
        }
    }

    fn exchange(&mut self, mut right: u32) {
        loop {
            let (left, _) = self.came_from[right as usize];
            let before = std::mem::replace(&mut self.of_left[left as usize], right);
            self.of_right[right as usize] = left;
            // Only the vertex that the search started from was unmatched.
            if before == NONE {
                return;
            }
            right = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// The size of a smallest cover, by trying them all.
    fn smallest(edges: &[(u32, u32)], num_left: usize, num_right: usize) -> u32 {
        let is_cover = |set: &u32| {
            let is_in = |at: usize| set & (1 << at) != 0;
            let mut edges = edges.iter();
            edges.all(|&(left, right)| is_in(left as usize) || is_in(num_left + right as usize))
        };
        let covers = (0..1u32 << (num_left + num_right)).filter(is_cover);
        covers.map(u32::count_ones).min().expect("all is a cover")
    }

    #[test]
    fn covers_every_edge_with_the_fewest() {
        for seed in 0..3_000 {
            let mut rng = Rng::new(seed);
            let (num_left, num_right) = (rng.below(7), 1 + rng.below(6));
            let density = 1 + rng.below(6);
            let mut graph = Graph::new(num_right);
            let mut edges = Vec::new();
            for left in 0..num_left as u32 {
                let mut ends: Vec<u32> = (0..num_right as u32).collect();
                ends.retain(|_| rng.below(density) == 0);
                edges.extend(ends.iter().map(|&end| (left, end)));
                // Some more than once.
                let again = ends.clone().into_iter().filter(|end| end % 2 == 0);
                graph.push(ends.iter().copied().chain(again));
            }
            let VertexCover { left, right } = graph.cover();
            for &(one, other) in &edges {
                assert!(left[one as usize] || right[other as usize], "seed {seed}");
            }
            let chosen = left.iter().chain(&right).filter(|is_in| **is_in).count();
            let expected = smallest(&edges, num_left, num_right);
            assert_eq!(chosen, expected as usize, "seed {seed}: {edges:?}");
        }
    }
}
