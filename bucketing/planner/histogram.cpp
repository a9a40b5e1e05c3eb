#include "bucketing/planner/histogram.hpp"

#include <algorithm>
#include <bit>

#include "base/bytes.hpp"
#include "base/hash.hpp"

namespace nc::buckets {
namespace {

constexpr char kVersion = 1;
constexpr unsigned kPreciseLevel = 26;
constexpr unsigned kPreciseBits = 5;  // 32 steps between two powers of two
constexpr unsigned kMaxLevel = kPreciseLevel + kPreciseBits;
constexpr std::size_t kSumBytes = 4;

std::uint32_t sum_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(xxh128(as_bytes(bytes)).low);
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Reads varints; after the first that does not fit, everything is 0 and ok() false.
class Varints {
 public:
  explicit Varints(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t next() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  Size size() {
    const std::uint64_t value = next();
    if (value > kMaxSize) ok_ = false;
    return ok_ ? static_cast<Size>(value) : 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Sorts and adds up equal keys.
template <class Cell>
void combine(std::vector<Cell>& cells, std::uint64_t most) {
  std::sort(cells.begin(), cells.end());
  std::size_t kept = 0;
  for (const Cell& cell : cells) {
    if (kept > 0 && cells[kept - 1].key == cell.key) {
      cells[kept - 1].count = std::min(most, cells[kept - 1].count + cell.count);
    } else {
      cells[kept++] = cell;
    }
  }
  cells.resize(kept);
}

}  // namespace

Size coarsened(Size size, unsigned level) {
  if (size < 2 || level == 0) return size;
  const auto k = static_cast<unsigned>(std::bit_width(size - 1)) - 1;  // 2^k < size <= 2^(k+1)
  const unsigned fine = k > kPreciseBits ? k - kPreciseBits : 0;
  const unsigned e =
      level <= kPreciseLevel ? std::min(level, fine) : std::min(k, fine + level - kPreciseLevel);
  const std::uint64_t step = std::uint64_t{1} << e;
  return static_cast<Size>(std::min<std::uint64_t>((size + step - 1) / step * step, kMaxSize));
}

template <std::size_t Dims>
typename Histogram<Dims>::Generation& Histogram<Dims>::generation(std::uint32_t number) {
  const auto at = std::lower_bound(
      generations_.begin(), generations_.end(), number,
      [](const Generation& one, std::uint32_t wanted) { return one.number < wanted; });
  if (at != generations_.end() && at->number == number) return *at;
  return *generations_.insert(at, Generation{number, 0, {}});
}

template <std::size_t Dims>
void Histogram<Dims>::insert(Generation& into, unsigned level, std::span<const Cell> cells) {
  const auto coarsen = [&](Cell& cell) {
    for (Size& size : cell.key) size = coarsened(size, into.level);
  };
  const bool rises = level > into.level;
  into.level = std::max(into.level, level);
  if (rises) std::for_each(into.cells.begin(), into.cells.end(), coarsen);
  into.cells.reserve(into.cells.size() + cells.size());
  for (Cell cell : cells) {
    if (cell.count == 0) continue;
    cell.count = std::min(cell.count, kMaxCount);
    coarsen(cell);
    into.cells.push_back(cell);
  }
  combine(into.cells, kMaxCount);
  while (into.cells.size() > kMaxCells && into.level < kMaxLevel) {
    ++into.level;
    std::for_each(into.cells.begin(), into.cells.end(), coarsen);
    combine(into.cells, kMaxCount);
  }
}

template <std::size_t Dims>
void Histogram<Dims>::note(const Key& smallest, const Key& largest) {
  for (std::size_t d = 0; d < Dims; ++d) {
    smallest_[d] = seen_ ? std::min(smallest_[d], smallest[d]) : smallest[d];
    largest_[d] = seen_ ? std::max(largest_[d], largest[d]) : largest[d];
  }
  seen_ = true;
}

template <std::size_t Dims>
void Histogram<Dims>::forget_old() {
  if (generations_.size() <= kGenerations) return;
  generations_.erase(generations_.begin(),
                     generations_.end() - static_cast<std::ptrdiff_t>(kGenerations));
}

template <std::size_t Dims>
void Histogram<Dims>::add(std::uint32_t number, std::span<const Cell> cells) {
  bool any = false;
  for (const Cell& cell : cells) {
    if (cell.count == 0) continue;
    note(cell.key, cell.key);
    any = true;
  }
  if (!any) return;
  insert(generation(number), 0, cells);
  forget_old();
}

template <std::size_t Dims>
void Histogram<Dims>::merge(const Histogram& other) {
  if (other.empty()) return;
  const Histogram copy = &other == this ? other : Histogram();  // merging with itself doubles
  const Histogram& from = &other == this ? copy : other;
  note(from.smallest_, from.largest_);
  for (const Generation& one : from.generations_) {
    insert(generation(one.number), one.level, one.cells);
  }
  forget_old();
}

template <std::size_t Dims>
std::vector<typename Histogram<Dims>::Cell> Histogram<Dims>::weighted() const {
  std::vector<Cell> out;
  out.reserve(cells());
  unsigned shift = kGenerations - 1;
  for (auto one = generations_.rbegin(); one != generations_.rend(); ++one, --shift) {
    for (const Cell& cell : one->cells) out.push_back({cell.key, cell.count << shift});
  }
  combine(out, kMaxTotal);
  return out;
}

template <std::size_t Dims>
std::uint64_t Histogram<Dims>::calls() const {
  std::uint64_t sum = 0;
  for (const Generation& one : generations_) {
    for (const Cell& cell : one.cells) sum += cell.count;
  }
  return sum;
}

template <std::size_t Dims>
std::size_t Histogram<Dims>::cells() const {
  std::size_t sum = 0;
  for (const Generation& one : generations_) sum += one.cells.size();
  return sum;
}

template <std::size_t Dims>
std::vector<std::uint32_t> Histogram<Dims>::generations() const {
  std::vector<std::uint32_t> out;
  for (const Generation& one : generations_) out.push_back(one.number);
  return out;
}

template <std::size_t Dims>
std::string Histogram<Dims>::encode(std::uint32_t number) const {
  for (const Generation& one : generations_) {
    if (one.number != number) continue;
    std::string out{kVersion, static_cast<char>(Dims), static_cast<char>(one.level)};
    put_varint(out, one.number);
    for (const Size size : smallest_) put_varint(out, size);
    for (const Size size : largest_) put_varint(out, size);
    put_varint(out, one.cells.size());
    Key before{};
    for (const Cell& cell : one.cells) {
      for (std::size_t d = 0; d < Dims; ++d) {
        put_varint(out, zigzag(static_cast<std::int64_t>(cell.key[d]) - before[d]));
      }
      put_varint(out, cell.count);
      before = cell.key;
    }
    put_u32(out, sum_of(out));
    return out;
  }
  return {};
}

template <std::size_t Dims>
bool Histogram<Dims>::decode(std::string_view bytes) {
  if (bytes.size() < 3 + kSumBytes || bytes[0] != kVersion || bytes[1] != static_cast<char>(Dims)) {
    return false;
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kSumBytes);
  if (get_u32(as_bytes(bytes).data() + body.size()) != sum_of(body)) return false;
  Generation one;
  one.level = static_cast<unsigned char>(body[2]);
  Varints in(body.substr(3));
  const std::uint64_t number = in.next();
  Key smallest{};
  Key largest{};
  for (Size& size : smallest) size = in.size();
  for (Size& size : largest) size = in.size();
  const std::uint64_t count = in.next();
  if (!in.ok() || one.level > kMaxLevel || number > UINT32_MAX || count > kMaxCells) return false;
  one.number = static_cast<std::uint32_t>(number);
  Key before{};
  for (std::uint64_t i = 0; i < count; ++i) {
    Cell cell;
    for (std::size_t d = 0; d < Dims; ++d) {
      // Unsigned, so that damage wraps around instead of overflowing.
      const std::uint64_t size = before[d] + static_cast<std::uint64_t>(unzigzag(in.next()));
      if (!in.ok() || size > kMaxSize) return false;
      cell.key[d] = static_cast<Size>(size);
      if (coarsened(cell.key[d], one.level) != cell.key[d]) return false;
    }
    cell.count = in.next();
    if (!in.ok() || cell.count == 0 || cell.count > kMaxCount) return false;
    if (i > 0 && cell.key <= before) return false;
    before = cell.key;
    one.cells.push_back(cell);
  }
  if (!in.at_end() || one.cells.empty()) return false;
  note(smallest, largest);
  insert(generation(one.number), one.level, one.cells);
  forget_old();
  return true;
}

template class Histogram<1>;
template class Histogram<2>;

std::vector<SizeHistogram::Cell> to_cells(const SizeCounts& counts) {
  std::vector<SizeHistogram::Cell> out;
  out.reserve(counts.size());
  for (const SizeCount& one : counts) out.push_back({{one.size}, one.count});
  return out;
}

SizeCounts to_counts(std::span<const SizeHistogram::Cell> cells) {
  SizeCounts out;
  out.reserve(cells.size());
  for (const auto& cell : cells) out.push_back({cell.key[0], cell.count});
  return out;
}

}  // namespace nc::buckets
