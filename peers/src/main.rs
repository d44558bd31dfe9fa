//! x
mod engine;
mod engines;
fn main() { struct V; impl engines::Visit for V { type Output=(); fn visit<E: engine::Engine>(self) {} }  engines::with_engine(engines::Name::Null, 8, V); println!("{}", engines::Name::Fjall.version()); let _ = engines::Name::DEFAULT; let _ = engines::Name::Null.is_durable(); }
