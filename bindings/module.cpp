#include "arrays.hpp"

PYBIND11_MODULE(_native, m) {
    namespace python = pyfast::python;
    m.doc() = "The native core of pyfast. Call it through pyfast.ops, which checks and documents the arguments.";
    pybind11::register_exception<pyfast::Error>(m, "Error", PyExc_ValueError);
    python::bind_betweenness(m);
    python::bind_bm25(m);
    python::bind_bridge_expand(m);
    python::bind_bridge_rank(m);
    python::bind_bridge_select(m);
    python::bind_cite(m);
    python::bind_count_words(m);
    python::bind_eigenvector(m);
    python::bind_evidence_graph(m);
    python::bind_fuse(m);
    python::bind_gatv2(m);
    python::bind_graph_rank(m);
    python::bind_hseq_stream(m);
    python::bind_maxsim(m);
    python::bind_narrate(m);
    python::bind_pagerank(m);
    python::bind_prune(m);
    python::bind_select_sentences(m);
    python::bind_weighted_degree(m);
#ifdef PYFAST_CUDA
    python::bind_cuda(m);
#endif
}
