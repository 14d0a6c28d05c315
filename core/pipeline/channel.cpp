#include "core/pipeline/channel.h"

#include "core/base/error.h"

#include <set>

namespace gpipe::pipeline {

std::vector<Channel::Ends> remote_pairs(const Plan& plan) {
  std::set<Channel::Ends> pairs;
  const auto add = [&](int from, int to) {
    const auto& device_of = plan.schedule.device_of;
    if (plan.is_remote(from, to)) pairs.insert({device_of[static_cast<size_t>(from)], device_of[static_cast<size_t>(to)]});
  };
  for (const EdgePlan& edge : plan.edges) add(edge.from, edge.to);
  for (const graph::Tie& tie : plan.network.ties) {
    const int owner = plan.stage_of(tie.owner_node), user = plan.stage_of(tie.user_node);
    add(owner, user);
    add(user, owner);
  }
  return {pairs.begin(), pairs.end()};
}

Channel::Channel(const Plan& plan, Ends ends, std::unique_ptr<Link> link, SlotView view)
    : plan_(plan),
      link_(std::move(link)),
      view_(std::move(view)),
      training_(agenda(ends, true)),
      evaluation_(agenda(ends, false)) {
  for (const Item& item : training_) {
    auto& all = transits_[item.edge];
    if (all.empty()) all = std::vector<Link::Transit>(static_cast<size_t>(plan.edges[static_cast<size_t>(item.edge)].slots));
  }
}

Channel::~Channel() {
  for (auto& [edge, all] : transits_)
    for (Link::Transit& transit : all) link_->drop(transit);
}

std::vector<Channel::Item> Channel::agenda(Ends ends, bool training) const {
  std::vector<Item> items;
  const auto add = [&](const std::vector<int>& edges, int micro) {
    for (const int edge : edges) {
      const auto to = static_cast<size_t>(plan_.edges[static_cast<size_t>(edge)].to);
      if (plan_.schedule.device_of[to] == ends.to) items.push_back({edge, micro});
    }
  };
  for (const Task& task : plan_.schedule.rows[static_cast<size_t>(ends.from)]) {
    const StageProgram& program = plan_.stages[static_cast<size_t>(task.stage)].program;
    if (task.work == Work::forward) add(program.activations_out, task.micro);
    if (training && (task.work == Work::backward || task.work == Work::backward_input)) add(program.gradients_out, task.micro);
  }
  return items;
}

void Channel::begin(bool training) {
  for (auto& [edge, all] : transits_) {
    for (Link::Transit& transit : all) link_->wait(transit);  // what the receiver of the last mini-batch has had
    released_[edge] = asked_[edge] = 0;
  }
  now_ = training ? &training_ : &evaluation_;
  next_ = 0;
}

bool Channel::has_room_for(const Item& item) {
  return item.micro < released_[item.edge] + plan_.edges[static_cast<size_t>(item.edge)].slots;
}

void Channel::ask() {
  const Item& item = (*now_)[next_++];
  link_->receive(view_(item.edge, item.micro), transit(item.edge, item.micro));
  asked_[item.edge] = item.micro + 1;
}

void Channel::wait_readable(int edge, int micro) {
  while (asked_[edge] <= micro) {
    GP_CHECK(next_ < now_->size() && has_room_for((*now_)[next_]));  // else the sender's order is not one to follow
    ask();
  }
  link_->wait(transit(edge, micro));
  if (next_ < now_->size() && has_room_for((*now_)[next_])) ask();
}

void Channel::release(int edge, int micro) { released_[edge] = micro + 1; }

}  // namespace gpipe::pipeline
