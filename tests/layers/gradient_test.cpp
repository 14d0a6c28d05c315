// Gradients of the product by themselves, without the references.
#include "tests/support/gradient_check.h"

#include <doctest/doctest.h>

TEST_CASE("every node's gradients are the slopes of its forward") { gpipe::test::check_gradients("cpu"); }
