// Replaces thrust's header of the same name: the policy is in execution_policy.h.
#pragma once
#include <thrust/system/cpp/detail/execution_policy.h>
