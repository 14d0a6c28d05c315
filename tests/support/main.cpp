// The one main of all test programs: doctest's, but filters that leave no test are an error, too.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

unsigned g_tests = 0;  // that the filters left
bool g_counted = false;

struct Count final : doctest::IReporter {
  explicit Count(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData& query) override {
    if (query.run_stats != nullptr) count(*query.run_stats);
  }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& run) override { count(run); }
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
  static void count(const doctest::TestRunStats& run) {
    g_tests = run.numTestCasesPassingFilters;
    g_counted = true;
  }
};
REGISTER_LISTENER("count", 1, Count);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (g_tests > 0 || !g_counted) return result;  // else --help was asked for
  std::fprintf(stderr, "error: no test has such a name; --list-test-cases lists them\n");
  return 1;
}
