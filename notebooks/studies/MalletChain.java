// MALLET as c14_tools.py asks for it: a chain with the weights of the other tools, and none beside them.
//     MalletChain TEXT MODEL variance tolerance iterations    writes MODEL, and its weights to MODEL.txt
// As c10_large.py asks: MALLET's own chain, over "all" pairs of labels or those "seen" alone.
//     MalletChain TEXT MODEL variance tolerance iterations "all"|"seen"
import cc.mallet.fst.*;
import cc.mallet.optimize.LimitedMemoryBFGS;
import cc.mallet.pipe.Pipe;
import cc.mallet.pipe.iterator.LineGroupIterator;
import cc.mallet.types.*;
import java.io.*;
import java.nio.file.*;
import java.util.*;
import java.util.regex.Pattern;

public class MalletChain {
    // A state for each label, and one to begin in: MALLET's own chains begin in a label before the first token.
    static CRF chain(Pipe pipe, InstanceList list, Set<String> pairs) {
        int n = pipe.getTargetAlphabet().size();
        var labels = Arrays.copyOf(pipe.getTargetAlphabet().toArray(), n, String[].class);
        for (var one : list) {
            var y = (Sequence) one.getTarget();
            for (int t = 1; t < y.size(); t++) pairs.add(y.get(t - 1) + " " + y.get(t));
        }
        var crf = new CRF(pipe, null);
        for (int i = 0; i <= n; i++) {
            var from = i < n ? labels[i] : " begin";
            var weights = new String[n][];
            for (int j = 0; j < n; j++) {
                var pair = from + " " + labels[j];
                weights[j] = pairs.contains(pair) ? new String[] {labels[j], pair} : new String[] {labels[j]};
                if (pairs.contains(pair)) // no attribute has a weight there: its one weight is the default
                    crf.setFeatureSelection(crf.getWeightsIndex(pair), new FeatureSelection(pipe.getDataAlphabet()));
            }
            crf.addState(from, i < n ? CRF.IMPOSSIBLE_WEIGHT : 0, 0, labels, labels, weights);
        }
        crf.setWeightsDimensionAsIn(list, false);
        return crf;
    }

    static CRF own(Pipe pipe, InstanceList list, String pairs) {
        var crf = new CRF(pipe, null);
        if (pairs.equals("all"))
            crf.addFullyConnectedStatesForThreeQuarterLabels(list);
        else
            crf.addStatesForThreeQuarterLabelsConnectedAsIn(list);
        crf.setWeightsDimensionAsIn(list, false);
        return crf;
    }

    public static void main(String[] given) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        var pipe = new SimpleTagger.SimpleTaggerSentence2FeatureVectorSequence();
        var list = new InstanceList(pipe);
        var text = Files.readString(Path.of(given[0])).replaceAll("(?m)^b ", ""); // the first column is Wapiti's
        list.addThruPipe(new LineGroupIterator(new StringReader(text), Pattern.compile("^\\s*$"), true));
        double variance = Double.parseDouble(given[2]);
        var pairs = new HashSet<String>();
        boolean own = given.length > 5;
        var crf = own ? own(pipe, list, given[5]) : chain(pipe, list, pairs);
        var objective = new CRFOptimizableByLabelLikelihood(crf, list) {
            protected double getExpectationValue() {
                double value = super.getExpectationValue();
                System.out.println("evaluation " + -(value + crf.getParameters().gaussianPrior(variance)));
                return value;
            }

            public void getValueGradient(double[] buffer) { // what the other tools lack stays 0
                super.getValueGradient(buffer);
                if (own) return;
                int at = 2 * crf.numStates();
                Arrays.fill(buffer, 0, at, 0);
                for (int i = 0; i < crf.getWeights().length; at += 1 + crf.getWeights(i++).numLocations())
                    if (!pairs.contains(crf.getWeightsName(i))) buffer[at] = 0;
            }
        };
        objective.setGaussianPriorVariance(variance);
        System.out.println("weights " + objective.getNumParameters());
        var optimizer = new LimitedMemoryBFGS(objective);
        optimizer.setTolerance(Double.parseDouble(given[3]));
        try {
            optimizer.optimize(Integer.parseInt(given[4]));
        } catch (Exception e) { // as its trainer does
            System.out.println("stopped: " + e.getMessage());
        }
        System.out.println("evaluation " + -objective.getValue());
        try (var out = new ObjectOutputStream(new FileOutputStream(given[1]))) { out.writeObject(crf); }
        try (var out = new PrintWriter(given[1] + ".txt")) {
            for (int i = 0; i < crf.getWeights().length; i++) {
                var name = crf.getWeightsName(i);
                var w = crf.getWeights(i);
                if (pairs.contains(name)) out.println("pair " + name + " " + crf.getDefaultWeights()[i]);
                for (int k = 0; k < w.numLocations(); k++) {
                    var attribute = pipe.getDataAlphabet().lookupObject(w.indexAtLocation(k));
                    out.println("node " + attribute + " " + name + " " + w.valueAtLocation(k));
                }
            }
        }
    }
}
