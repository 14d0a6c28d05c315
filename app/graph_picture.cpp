#include "app/graph_picture.h"

#include "core/base/error.h"

#include <graphviz/cgraph.h>
#include <graphviz/gvc.h>

#include <memory>

namespace gpipe::app {
namespace {

/// What Graphviz complains about; it takes a plain function.
std::string& complaints() {
  static std::string text;
  return text;
}

int keep_complaint(char* text) {
  constexpr size_t enough = 2000;
  if (complaints().size() < enough) complaints() += text;
  return 0;
}

}  // namespace

std::string svg_of_dot(const std::string& dot) {
  complaints().clear();
  agseterrf(keep_complaint);
  agseterr(AGERR);
  const std::unique_ptr<GVC_t, int (*)(GVC_t*)> context(gvContext(), gvFreeContext);
  const std::unique_ptr<Agraph_t, int (*)(Agraph_t*)> graph(agmemread(dot.c_str()), agclose);
  if (!context || !graph) throw base::ConfigError("the graph cannot be read by Graphviz: {}", complaints());
  if (gvLayout(context.get(), graph.get(), "dot") != 0)
    throw base::ConfigError("Graphviz cannot lay out the graph: {}", complaints());
  char* data = nullptr;
  unsigned int length = 0;
  const int failed = gvRenderData(context.get(), graph.get(), "svg", &data, &length);
  const std::string svg = failed == 0 && data != nullptr ? std::string(data, length) : std::string();
  if (data != nullptr) gvFreeRenderData(data);
  gvFreeLayout(context.get(), graph.get());
  if (svg.empty()) throw base::ConfigError("Graphviz cannot draw the graph: {}", complaints());
  return svg;
}

}  // namespace gpipe::app
