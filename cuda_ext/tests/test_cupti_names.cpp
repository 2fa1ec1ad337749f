#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "otel_straggler/cupti/kernel_names.hpp"

using namespace otel_straggler::cupti;

TEST_CASE("a name has one number, wherever it lies") {
  KernelNames names;
  const std::string first = "gemm";
  const std::string second = "gemm";
  const std::uint32_t number = names.number_of(first.c_str());
  CHECK(names.number_of(second.c_str()) == number);
  CHECK(names.text(number) == "gemm");
  CHECK(names.number_of("other_gemm") != number);
  CHECK(names.text(names.number_of(nullptr)) == KernelNames::kOther);
}

TEST_CASE("a place that holds another name now is noticed") {
  KernelNames names;
  char place[16] = "softmax";
  const std::uint32_t before = names.number_of(place);
  std::strcpy(place, "layer_norm");
  names.begin_poll();
  const std::uint32_t after = names.number_of(place);
  CHECK(names.text(after) == "layer_norm");
  std::strcpy(place, "softmax");
  names.begin_poll();
  CHECK(names.number_of(place) == before);
}

TEST_CASE("communication kernels of every generation are a class of their own") {
  KernelNames names;
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "_Z46ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE",
        "ncclKernel_AllReduce_RING_LL_Sum_float", "ncclSymkDevKernel_AllReduce_RSxLD_AGxST",
        "void nvshmemi_barrier", "void deep_ep::intranode::dispatch<8>"}) {
    CAPTURE(name);
    CHECK(names.class_of(names.number_of(name)) == KernelClass::kNccl);
  }
  for (const char* name : {"Memcpy HtoD (Pinned -> Device)", "[CUDA memset]"}) {
    CHECK(names.class_of(names.number_of(name)) == KernelClass::kMemory);
  }
  CHECK(names.class_of(names.number_of("ampere_sgemm_128x64_tn")) == KernelClass::kCompute);
  CHECK(names.class_of(names.of_memcpy()) == KernelClass::kMemory);
}

TEST_CASE("ten thousand names take bounded room; further ones are <other> of their class") {
  KernelNames names;
  std::vector<std::string> all;
  for (int at = 0; at < 10'000; ++at) {
    all.push_back((at % 2 == 0 ? "kernel_" : "ncclDevKernel_") + std::to_string(at));
  }
  for (int round = 0; round < 2; ++round) {
    for (const std::string& name : all) static_cast<void>(names.number_of(name.c_str()));
  }
  CHECK(names.size() == KernelNames::kMaxNames + kKernelClasses);
  CHECK(names.text(names.number_of(all[9'998].c_str())) == KernelNames::kOther);
  CHECK(names.class_of(names.number_of(all[9'998].c_str())) == KernelClass::kCompute);
  CHECK(names.class_of(names.number_of(all[9'999].c_str())) == KernelClass::kNccl);
  CHECK(names.text(names.number_of(all[1].c_str())) == all[1]);
}

TEST_CASE("names of 20 kB are cut, and stay apart") {
  KernelNames names;
  const std::string first(20'000, 'a');
  const std::string second = first + "b";
  const std::uint32_t number = names.number_of(first.c_str());
  CHECK(names.number_of(second.c_str()) != number);
  CHECK(names.number_of(first.c_str()) == number);
  CHECK(names.text(number).size() == KernelNames::kMaxNameBytes);
}

TEST_CASE("a C++ name is made readable when it is asked for") {
  KernelNames names;
  const std::uint32_t number = names.number_of("_ZN2at6native4gemmIfEEvPT_i");
  CHECK(names.text(number) == "_ZN2at6native4gemmIfEEvPT_i");
  CHECK(readable(names.text(number)) == "void at::native::gemm<float>(float*, int)");
  CHECK(readable("plain_c_name") == "plain_c_name");
}
