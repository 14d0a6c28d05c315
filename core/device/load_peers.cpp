// Finds out whether a launcher of MPI started several processes, and loads what joins them then: a program on its own neither
// loads MPI nor opens a connection.
#include "core/base/error.h"
#include "core/device/peers.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace gpipe::device {

// mpirun, or srun --mpi=pmix.
int launched_processes() {
  const char* by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* by_slurm = std::getenv("PMIX_RANK") != nullptr ? std::getenv("SLURM_NTASKS") : nullptr;
  const char* value = by_mpirun != nullptr ? by_mpirun : by_slurm;
  return value != nullptr ? std::atoi(value) : 1;
}

std::shared_ptr<Peers> open_peers(double timeout_s) {
  if (launched_processes() < 2) return nullptr;
  std::error_code none;
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "libgpipe_mpi.so";
  const std::string path = std::filesystem::exists(beside, none) ? beside.string() : "libgpipe_mpi.so";  // or the run path's
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // MPI's own modules look for its names
  void* open = module == nullptr ? nullptr : dlsym(module, "gpipe_open_peers");
  if (open == nullptr)
    throw base::PeerError(
        "{} processes were started, but what joins them cannot be loaded: {}; build with Open MPI (GPIPE_MPI=ON) and keep "
        "libgpipe_mpi.so beside the program, or leave out mpirun",
        launched_processes(), dlerror());
  std::shared_ptr<Peers> peers(reinterpret_cast<Peers* (*)()>(open)());
  peers->set_timeout(timeout_s);
  if (peers->size() > 1) return peers;
  throw base::PeerError(
      "{} processes were started, but each finds itself alone: start them with Open MPI's mpirun, or srun --mpi=pmix",
      launched_processes());
}

}  // namespace gpipe::device
