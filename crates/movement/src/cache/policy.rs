//! What the user of the cache decides: where copies go, which engines make them, and whose memory they take.

use crate::engine::Engine;
use crate::range::{Buffer, Node};

/// An access that may lead to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The node of the reader.
    pub reader: Node,
    /// The node of the source.
    pub source: Node,
    /// Bytes of the source.
    pub bytes: usize,
}

/// Decides for a cache. Called without any lock held, by every reader at once.
///
/// Memory is freed by dropping the [`Buffer`], which drops whatever it was made of.
///
/// ```
/// use terrace_movement::{Arena, Buffer, Engine, Node, Policy, Request};
///
/// /// Copies everything to node 1, by one engine.
/// struct Near(Arena, Engine);
///
/// impl Policy for Near {
///     fn place(&self, _: &Request) -> Node {
///         Node(1)
///     }
///     fn route(&self, _: &Request, _: Node) -> Vec<Engine> {
///         vec![self.1.clone()]
///     }
///     fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> {
///         self.0.buffer(bytes)
///     }
/// }
/// # let near = Near(Arena::new(4096, None).unwrap(), Engine::cached());
/// # let request = Request { reader: Node(0), source: Node(0), bytes: 9 };
/// # assert_eq!((near.place(&request), near.route(&request, Node(1)).len()), (Node(1), 1));
/// # assert!(near.allocate(Node(1), 9).is_some());
/// ```
pub trait Policy: Send + Sync {
    /// The node that a copy belongs on; the source's own for no copy. On the path of every hit.
    fn place(&self, request: &Request) -> Node;

    /// The engines that share one copy; none for no copy.
    fn route(&self, request: &Request, to: Node) -> Vec<Engine>;

    /// Memory for a copy of at least `bytes` bytes, or `None` when the node has no room: the cache then evicts from
    /// that node and asks once more.
    fn allocate(&self, node: Node, bytes: usize) -> Option<Buffer>;
}
