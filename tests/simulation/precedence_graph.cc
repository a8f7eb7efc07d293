#include "tests/simulation/precedence_graph.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <utility>

#include "cell/base/check.h"

namespace cell {
namespace {

using Reason = Precedence::Reason;

// Returns whether an edge adds nothing to the length of a path: the end of a transaction does already.
bool IsFree(const Precedence& edge) { return edge.reason == Reason::kTime || edge.reason == Reason::kBegin; }

}  // namespace

bool PrecedenceGraph::Sort(const std::vector<int64_t>& moments) {
  std::vector<size_t> before(out_.size());  // By node: the number of edges from nodes that have no position yet.
  for (const Precedence& edge : edges_) ++before[static_cast<size_t>(edge.to)];
  using Ready = std::pair<int64_t, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (size_t node = 0; node < before.size(); ++node) {
    if (before[node] == 0) ready.push({moments[node], static_cast<int>(node)});
  }
  std::fill(position_.begin(), position_.end(), static_cast<int>(position_.size()));
  int next = 0;
  for (; !ready.empty(); ++next) {
    const auto node = static_cast<size_t>(ready.top().second);
    ready.pop();
    position_[node] = next;
    for (const size_t number : out_[node]) {
      const auto to = static_cast<size_t>(edges_[number].to);
      if (--before[to] == 0) ready.push({moments[to], edges_[number].to});
    }
  }
  sorted_ = static_cast<size_t>(next) == out_.size();
  return sorted_;
}

std::vector<size_t> PrecedenceGraph::FindCycle() {
  // Each node without a position has an edge from another one. Going back along those must come to a node again.
  const auto none = static_cast<int>(position_.size());
  auto node = static_cast<int>(std::find(position_.begin(), position_.end(), none) - position_.begin());
  std::vector<bool> been(position_.size());
  while (!been[static_cast<size_t>(node)]) {
    been[static_cast<size_t>(node)] = true;
    for (const size_t number : in_[static_cast<size_t>(node)]) {
      if (position(edges_[number].from) != none) continue;
      node = edges_[number].from;
      break;
    }
  }
  // Look for shorter ones through the nodes of the best one. All of them pass through what is wrong, if one thing is.
  const auto steps = [this](const std::vector<size_t>& path) {
    return std::count_if(path.begin(), path.end(), [this](size_t number) { return !IsFree(edges_[number]); });
  };
  std::vector<size_t> best = FindPath(node, node);
  for (bool better = true; better;) {
    better = false;
    for (const size_t number : best) {
      if (IsFree(edges_[number])) continue;  // It comes from a moment. There may be thousands in a row.
      std::vector<size_t> other = FindPath(edges_[number].from, edges_[number].from);
      if (steps(other) >= steps(best)) continue;
      best = std::move(other);
      better = true;
      break;
    }
  }
  return best;
}

void PrecedenceGraph::Add(const Precedence& edge) {
  out_[static_cast<size_t>(edge.from)].push_back(edges_.size());
  in_[static_cast<size_t>(edge.to)].push_back(edges_.size());
  edges_.push_back(edge);
  const int least = position(edge.to), greatest = position(edge.from);
  if (!sorted_ || greatest < least) return;
  std::vector<int> moved, after;
  Reach(edge.from, false, least, greatest, &moved);
  Reach(edge.to, true, least, greatest, &after);
  CELL_CHECK(seen_[static_cast<size_t>(edge.from)] != search_);  // Otherwise the edge closes a cycle.
  const auto by_position = [this](int a, int b) { return position(a) < position(b); };
  std::sort(moved.begin(), moved.end(), by_position);
  std::sort(after.begin(), after.end(), by_position);
  moved.insert(moved.end(), after.begin(), after.end());
  std::vector<int> positions;
  for (const int node : moved) positions.push_back(position(node));
  std::sort(positions.begin(), positions.end());
  for (size_t i = 0; i < moved.size(); ++i) position_[static_cast<size_t>(moved[i])] = positions[i];
}

void PrecedenceGraph::Truncate(size_t edges) {
  while (edges_.size() > edges) {
    out_[static_cast<size_t>(edges_.back().from)].pop_back();
    in_[static_cast<size_t>(edges_.back().to)].pop_back();
    edges_.pop_back();
  }
}

void PrecedenceGraph::Reach(int node, bool forward, int least, int greatest, std::vector<int>* reached) {
  ++search_;
  seen_[static_cast<size_t>(node)] = search_;
  reached->push_back(node);
  for (size_t i = 0; i < reached->size(); ++i) {
    const auto at = static_cast<size_t>((*reached)[i]);
    for (const size_t number : forward ? out_[at] : in_[at]) {
      ++steps_;
      const int next = forward ? edges_[number].to : edges_[number].from;
      if (position(next) < least || position(next) > greatest) continue;
      if (std::exchange(seen_[static_cast<size_t>(next)], search_) != search_) reached->push_back(next);
    }
  }
}

std::vector<size_t> PrecedenceGraph::FindPath(int from, int to, size_t end) {
  ++search_;
  // Nodes at the front are as far away as the one before, those at the back are a step farther.
  std::deque<std::pair<int, int>> ahead = {{0, from}};  // Lengths and nodes.
  while (!ahead.empty()) {
    const auto [length, node] = ahead.front();
    ahead.pop_front();
    const bool again = seen_[static_cast<size_t>(node)] == search_;
    if (again && node == to) break;
    if (again && length > length_[static_cast<size_t>(node)]) continue;  // It was reached by a shorter path since.
    for (const size_t number : out_[static_cast<size_t>(node)]) {
      ++steps_;
      if (number >= end) break;
      const Precedence& edge = edges_[number];
      if (position(edge.to) > position(to)) continue;
      const auto next = static_cast<size_t>(edge.to);
      const int next_length = length + (IsFree(edge) ? 0 : 1);
      if (seen_[next] == search_ && length_[next] <= next_length) continue;
      seen_[next] = search_;
      length_[next] = next_length;
      via_[next] = number;
      if (IsFree(edge)) {
        ahead.push_front({next_length, edge.to});
      } else {
        ahead.push_back({next_length, edge.to});
      }
    }
  }
  std::vector<size_t> path;
  if (seen_[static_cast<size_t>(to)] != search_) return path;
  for (int node = to; path.empty() || node != from; node = edges_[path.back()].from) {
    path.push_back(via_[static_cast<size_t>(node)]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace cell
